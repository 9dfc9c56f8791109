"""Writing and restoring backups, with logs and definitions that are plain files."""

import errno
import json
import os
import shutil
import threading
from pathlib import Path

import pytest

from penstock.model.errors import PreconditionFailedError, StorageError, Thing
from penstock.storage import (
    DataDirectory,
    UserRecord,
    VhostCopy,
    backup,
    copy_users,
    directory_name,
    read_users,
    read_vhosts,
    restore_backup,
    write_backup,
    write_users,
    write_vhosts,
)
from penstock.storage.backup import OpenLog
from penstock.storage.definitions_amqp import create_definitions
from penstock.storage.deletions import complete_deletions
from penstock.storage.deletions_json import Deletion, Kind
from penstock.storage.limits_json import read_user_limits_file, write_limits_file
from penstock.storage.new_directory import new_directory
from penstock.storage.vhost_files import create_vhost_directory


class PlainLog:
    position = 7

    def __init__(self, fails: bool = False) -> None:
        self._fails = fails

    def write(self, directory: str) -> None:
        if self._fails:
            raise StorageError(Thing("log", directory), "failed: disk full", "free space")
        (Path(directory) / "msgs.0000000001").write_bytes(b"records")

    def open(self) -> OpenLog:
        raise AssertionError("these backups are written to directories")


class PlainDefinitions:
    sizes = (0, 0)

    def write(self, path: Path) -> None:
        create_definitions(path)

    def read(self) -> tuple[bytes, bytes]:
        raise AssertionError("these backups are written to directories")


@pytest.fixture
def data(tmp_path):
    with DataDirectory.open(tmp_path / "data") as opened:
        write_users(opened.users_file, [])
        write_vhosts(opened.vhosts_file, ["a/b"])
        create_vhost_directory(opened.vhost_directory("a/b"), "a/b")
        yield opened


def test_a_vhost_whose_copy_hangs_holds_up_the_copy_of_no_other(data, tmp_path):
    """It held up all that came after it, and none of them could be deleted."""
    hung, others = threading.Event(), threading.Event()

    class HangingLog(PlainLog):
        def write(self, directory: str) -> None:
            assert hung.wait(30)
            super().write(directory)

    def written(copy: VhostCopy) -> None:
        if copy.name == "b":
            others.set()

    for name in ("a", "b"):
        create_vhost_directory(data.vhost_directory(name), name)
    vhosts = [VhostCopy("a", PlainDefinitions(), HangingLog()), VhostCopy("b", PlainDefinitions(), PlainLog())]
    writing = threading.Thread(target=write_backup, args=(data, tmp_path / "copy", vhosts, copy_users(data), written))
    writing.start()
    try:
        assert others.wait(10)
        assert not (tmp_path / "copy" / "backup.json").exists()
    finally:
        hung.set()
        writing.join()
    assert (tmp_path / "copy" / "backup.json").exists()


def make_backup(data, target, vhosts):
    return write_backup(data, target, vhosts, copy_users(data))


def copies(**options):
    return [VhostCopy("a/b", PlainDefinitions(), PlainLog(**options))]


def test_a_restored_backup_has_every_file_and_makes_the_first_start_skip_numbers(data, tmp_path):
    size = make_backup(data, tmp_path / "copy", copies())

    assert restore_backup(tmp_path / "copy", tmp_path / "new") == ["a/b"]

    assert size > 0
    folder = tmp_path / "new" / directory_name("a/b")
    assert sorted(path.name for path in folder.iterdir()) == [
        ".vhost",
        "definitions.amqp",
        "definitions.crc",
        "msgs.0000000001",
        "policies.json",
    ]
    assert (folder / "msgs.0000000001").read_bytes() == b"records"
    assert read_vhosts(tmp_path / "new" / "vhosts.json") == ["a/b"]
    with DataDirectory.open(tmp_path / "new") as opened:
        assert opened.may_have_lost_page_cache
        assert opened.has_proof("a/b")


@pytest.mark.parametrize("format_", [1, 2])
def test_a_restored_directory_has_the_format_of_its_backup(data, tmp_path, format_):
    make_backup(data, tmp_path / "copy", copies())
    summary = tmp_path / "copy" / "backup.json"
    content = json.loads(summary.read_text())
    assert content["format"] == 2
    summary.write_text(json.dumps(content | {"format": format_}))

    restore_backup(tmp_path / "copy", tmp_path / "new")

    with DataDirectory.open(tmp_path / "new") as opened:
        assert opened.format == format_


def test_a_backup_of_a_newer_version_is_not_restored(data, tmp_path):
    make_backup(data, tmp_path / "copy", copies())
    summary = tmp_path / "copy" / "backup.json"
    summary.write_text(json.dumps(json.loads(summary.read_text()) | {"format": 3}))

    with pytest.raises(PreconditionFailedError, match="it knows 1 to 2"):
        restore_backup(tmp_path / "copy", tmp_path / "new")


def test_a_restored_users_file_is_for_the_broker_s_user_alone(data, tmp_path):
    make_backup(data, tmp_path / "copy", copies())
    (tmp_path / "copy" / "user_limits.json").write_text("[]")
    for path in (tmp_path / "copy").glob("user*.json"):
        path.chmod(0o644)  # as copies by other tools leave it

    restore_backup(tmp_path / "copy", tmp_path / "new")

    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "new").glob("user*.json")}
    assert modes == {"users.json": 0o600, "user_limits.json": 0o600}


def test_a_restored_backup_completes_a_deletion_that_had_begun(data, tmp_path):
    """Permissions of a vhost that was being deleted came back, and a vhost made anew had them."""
    deletion = Deletion(Kind.USER, "anna")
    data.deletions.begin(deletion)
    make_backup(data, tmp_path / "copy", copies())
    data.deletions.end(deletion)
    make_backup(data, tmp_path / "later", copies())

    for copy, begun in (("copy", (deletion,)), ("later", ())):
        restore_backup(tmp_path / copy, tmp_path / f"new-{copy}")
        with DataDirectory.open(tmp_path / f"new-{copy}") as opened:
            assert opened.deletions.begun == begun
            assert complete_deletions(opened) == []
            assert opened.deletions.begun == begun, "the last step needs the logs"


def test_a_deletion_that_ends_between_two_copies_is_in_both(data, tmp_path, monkeypatch):
    """The copy had a user without limits that had never been without."""
    deletion = Deletion(Kind.USER, "anna")
    anna = UserRecord("anna", "", "argon2id")
    write_users(data.users_file, [anna])
    write_limits_file(data.user_limits_file, {"anna": {"publish-rate": 5}})
    really = read_users
    count = 0

    def read(path):
        nonlocal count
        users, count = really(path), count + 1
        if count == 1:
            data.deletions.begin(deletion)
            complete_deletions(data)
            data.deletions.end(deletion)
        return users

    monkeypatch.setattr(backup, "read_users", read)
    make_backup(data, tmp_path / "copy", copies())

    assert read_users(tmp_path / "copy" / "users.json") == []
    assert read_user_limits_file(tmp_path / "copy" / "user_limits.json") == {}


def test_a_target_that_cannot_be_emptied_either_is_reported_by_its_first_error(tmp_path):
    target = tmp_path / "copy"

    def fill():
        with new_directory(target):
            target.rename(tmp_path / "elsewhere")
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(StorageError, match="Input/output error"):
        fill()


def test_a_backup_that_fails_leaves_nothing(data, tmp_path):
    (tmp_path / "empty").mkdir()

    for target in ("new", "empty"):
        with pytest.raises(StorageError, match="disk full"):
            make_backup(data, tmp_path / target, copies(fails=True))

    assert not (tmp_path / "new").exists()
    assert list((tmp_path / "empty").iterdir()) == []


def test_nothing_is_written_over(data, tmp_path):
    make_backup(data, tmp_path / "copy", copies())

    with pytest.raises(PreconditionFailedError, match="is not empty"):
        make_backup(data, tmp_path / "copy", copies())
    with pytest.raises(PreconditionFailedError, match="is not empty"):
        restore_backup(tmp_path / "copy", data.path)


def test_a_copy_without_its_last_file_is_no_backup(data, tmp_path):
    make_backup(data, tmp_path / "copy", copies())
    (tmp_path / "copy" / "backup.json").unlink()

    with pytest.raises(PreconditionFailedError, match="not complete"):
        restore_backup(tmp_path / "copy", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])])
def test_a_copy_of_a_backup_that_lacks_something_is_not_restored(data, tmp_path, harm):
    """`backup.json` may come first when a backup is copied elsewhere: files missing after it were not noticed."""
    make_backup(data, tmp_path / "copy", copies())
    files = [path for path in (tmp_path / "copy").rglob("*") if path.is_file() and path.name != "backup.json"]
    assert len(files) == 7

    for number, path in enumerate(path for path in files if path.stat().st_size):
        broken = tmp_path / f"broken-{number}"
        shutil.copytree(tmp_path / "copy", broken)
        harm(broken / path.relative_to(tmp_path / "copy"))
        with pytest.raises(StorageError, match=path.name):
            restore_backup(broken, tmp_path / "new")
        assert not (tmp_path / "new").exists()


def test_no_changed_bit_of_its_last_file_makes_less_of_a_backup(data, tmp_path):
    """A changed letter of "vhosts" made an empty data directory."""
    make_backup(data, tmp_path / "copy", copies())
    summary = tmp_path / "copy" / "backup.json"
    whole = summary.read_bytes()
    refused = 0

    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1
        summary.write_bytes(changed)
        target = tmp_path / f"new-{at}"
        try:
            assert restore_backup(tmp_path / "copy", target) == ["a/b"]
            assert (target / directory_name("a/b") / "msgs.0000000001").read_bytes() == b"records"
        except (PreconditionFailedError, StorageError):
            refused += 1
            assert not target.exists()

    assert refused > len(whole) / 2


def test_a_backup_that_lists_no_files_is_not_restored(data, tmp_path):
    make_backup(data, tmp_path / "copy", copies())
    summary = tmp_path / "copy" / "backup.json"
    content = json.loads(summary.read_text())
    del content["files"]
    summary.write_text(json.dumps(content))

    with pytest.raises(StorageError, match="lists no files"):
        restore_backup(tmp_path / "copy", tmp_path / "new")
