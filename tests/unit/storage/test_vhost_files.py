"""A vhost's directory, interrupted at every step of its making and its end."""

import asyncio
import errno
import itertools
import os
from pathlib import Path

import pytest

from penstock.model.errors import StorageError
from penstock.storage.directory import directory_name
from penstock.storage.vhost_files import (
    create_vhost_directory,
    delete_vhost_directory,
    mark_deleted,
    open_vhost_directory,
    remove_strays,
)


def opened(path, name):
    file, changes = open_vhost_directory(path, name)
    asyncio.run(file.close())
    return changes


@pytest.fixture
def path(tmp_path):
    return tmp_path / directory_name("sales")


def test_a_new_vhost_has_its_name_its_policies_and_no_definitions(path):
    create_vhost_directory(path, "sales")

    assert opened(path, "sales") == []
    assert (path / ".vhost").read_text() == "sales"
    assert (path / "policies.json").read_text() == "[]\n"


def test_a_creation_that_was_interrupted_is_begun_again(path):
    path.mkdir()
    (path / ".vhost.new").write_text("sal")

    create_vhost_directory(path, "sales")

    assert opened(path, "sales") == []


def test_a_directory_with_data_that_no_list_names_is_not_overwritten(path):
    create_vhost_directory(path, "sales")
    opened(path, "sales")

    with pytest.raises(StorageError, match=r"vhosts\.json"):
        create_vhost_directory(path, "sales")

    assert opened(path, "sales") == []


def test_a_deletion_that_was_interrupted_after_the_list_is_finished_at_the_start(path, tmp_path):
    create_vhost_directory(path, "sales")
    opened(path, "sales")
    mark_deleted(path)

    removed = remove_strays(tmp_path, set())

    assert removed == [path.name]
    assert not path.exists()


def test_a_deletion_that_was_interrupted_before_the_list_did_not_happen(path, tmp_path):
    create_vhost_directory(path, "sales")
    mark_deleted(path)

    assert remove_strays(tmp_path, {path.name}) == []
    assert opened(path, "sales") == []
    assert not (path / ".deleted").exists()


def test_a_directory_without_the_mark_of_deletion_stays(path, tmp_path):
    create_vhost_directory(path, "sales")
    opened(path, "sales")

    assert remove_strays(tmp_path, set()) == []
    assert path.exists()


@pytest.mark.parametrize("fails_at", range(5))
def test_a_removal_that_fails_anywhere_is_finished_later(path, tmp_path, monkeypatch, fails_at):
    create_vhost_directory(path, "sales")
    opened(path, "sales")
    (path / "shards").mkdir()
    mark_deleted(path)
    removed, really = itertools.count(), Path.unlink

    def unlink(self, missing_ok=False):
        if next(removed) == fails_at:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        really(self)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", unlink)
        with pytest.raises(StorageError, match="cannot be removed"):
            delete_vhost_directory(path)
        assert (path / ".deleted").exists()
        removed = itertools.count(fails_at)
        assert remove_strays(tmp_path, set()) == []

    assert remove_strays(tmp_path, set()) == [path.name]
    create_vhost_directory(path, "sales")
    assert opened(path, "sales") == []


def test_a_creation_that_no_list_came_to_name_is_rubbish(path, tmp_path):
    create_vhost_directory(path, "sales")

    assert remove_strays(tmp_path, set()) == [path.name]


@pytest.mark.parametrize("left", ["msgs.0000000001", "checkpoint.0000000001", "definitions.crc"])
def test_definitions_that_are_missing_beside_a_log_or_a_proof_are_refused(path, left):
    create_vhost_directory(path, "sales")
    opened(path, "sales")
    for file in ("definitions.amqp", "definitions.crc"):
        (path / file).unlink()
    (path / left).write_bytes(b"")

    with pytest.raises(StorageError, match=r"definitions\.amqp' is missing"):
        opened(path, "sales")


def test_a_vhost_that_an_earlier_version_had_only_named_is_begun(path):
    path.mkdir()
    (path / ".vhost").write_text("sales")

    assert opened(path, "sales") == []


def test_a_log_without_any_segment_is_refused_where_there_was_one(path):
    create_vhost_directory(path, "sales")
    opened(path, "sales")

    # Files beside segments that outlive them prove nothing about their content.
    for left in (".idx", ".corrupt", ".aside", ".2.idx", ".tmp"):
        (path / f"msgs.0000000001{left}").touch()
    for left in (".tmp", ".aside"):
        (path / f"checkpoint.0000000001{left}").touch()
    with pytest.raises(StorageError, match=r"has no segment.*definitions\.crc from `files`"):
        open_vhost_directory(path, "sales", is_proven=True)

    # A log without live messages is stopped without segments.
    for found in ("msgs.0000000001", "msgs.0000000001.2", "checkpoint.0000000001", "checkpoint.12345678901"):
        (path / found).touch()
        file, _ = open_vhost_directory(path, "sales", is_proven=True)
        asyncio.run(file.close())
        (path / found).unlink()


def test_deleting_what_is_gone_is_fine(path):
    delete_vhost_directory(path)


def test_the_directory_of_another_vhost_is_refused(path):
    create_vhost_directory(path, "other")

    with pytest.raises(StorageError, match="'other'"):
        opened(path, "sales")


def test_a_vhost_without_its_directory_is_refused(path):
    with pytest.raises(StorageError, match="no directory"):
        opened(path, "sales")
