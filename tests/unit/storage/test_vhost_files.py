"""A vhost's directory, interrupted at every step of its making and its end."""

import asyncio

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


def test_deleting_what_is_gone_is_fine(path):
    delete_vhost_directory(path)


def test_the_directory_of_another_vhost_is_refused(path):
    create_vhost_directory(path, "other")

    with pytest.raises(StorageError, match="'other'"):
        opened(path, "sales")


def test_a_vhost_without_its_directory_is_refused(path):
    with pytest.raises(StorageError, match="no directory"):
        opened(path, "sales")
