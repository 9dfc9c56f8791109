"""The data directory: one process at a time, and how the last run ended."""

import json
import subprocess
import sys
import uuid

import pytest

from penstock.model.errors import StorageError
from penstock.storage import DataDirectory, LastRun, write_users, write_vhosts
from penstock.storage.directory import directory_name

TAKE_LOCK = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)"


@pytest.fixture
def boot(tmp_path):
    path = tmp_path / "boot_id"
    path.write_text("first-boot\n")
    return path


def test_a_new_directory_is_made_with_all_its_parents(tmp_path, boot):
    with DataDirectory.open(tmp_path / "a" / "b", boot) as directory:
        assert directory.last_run == LastRun(is_new=True, was_clean=False, same_boot=False)
        assert not directory.may_have_lost_page_cache


def test_a_second_broker_is_refused_and_told_who_has_it(tmp_path, boot):
    with DataDirectory.open(tmp_path / "d", boot), pytest.raises(StorageError, match="in use by another broker"):
        DataDirectory.open(tmp_path / "d", boot)

    DataDirectory.open(tmp_path / "d", boot).close()


def test_the_lock_holds_against_another_process(tmp_path, boot):
    with DataDirectory.open(tmp_path / "d", boot):
        tried = subprocess.run(
            [sys.executable, "-c", TAKE_LOCK, str(tmp_path / "d" / ".lock")], capture_output=True, check=False
        )

    assert b"BlockingIOError" in tried.stderr


def test_clean_is_gone_as_soon_as_the_next_run_begins(tmp_path, boot):
    with DataDirectory.open(tmp_path / "d", boot) as directory:
        directory.mark_clean()
    assert (tmp_path / "d" / "clean").exists()

    with DataDirectory.open(tmp_path / "d", boot) as directory:
        assert directory.last_run.was_clean
        directory.begin([])
        assert not (tmp_path / "d" / "clean").exists()
    with DataDirectory.open(tmp_path / "d", boot) as directory:
        assert not directory.last_run.was_clean


def test_a_directory_keeps_the_id_it_was_made_with(tmp_path, boot):
    with DataDirectory.open(tmp_path / "d", boot) as directory:
        made = directory.data_id
        directory.begin([])

    boot.write_text("second-boot\n")
    with DataDirectory.open(tmp_path / "d", boot) as directory:
        assert directory.data_id == made


def test_a_directory_that_was_emptied_gets_another_id(tmp_path, boot):
    with DataDirectory.open(tmp_path / "d", boot) as directory:
        before = directory.data_id
        directory.begin([])
    for path in (tmp_path / "d").iterdir():
        path.unlink()

    with DataDirectory.open(tmp_path / "d", boot) as directory:
        assert directory.data_id != before


@pytest.mark.parametrize("known", ['{"format": 1, "boot_id": ""}', '{"format": 1, "boot_id": "", "data_id": "../x"}'])
def test_a_directory_without_an_id_that_can_be_used_gets_one_for_good(tmp_path, boot, known):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "node.json").write_text(known)

    with DataDirectory.open(tmp_path / "d", boot) as directory:
        given = directory.data_id
        directory.begin([])
        assert not directory.last_run.is_new
    with DataDirectory.open(tmp_path / "d", boot) as directory:
        assert directory.data_id == given


def test_the_page_cache_may_be_lost_only_after_another_boot_without_a_clean_stop(tmp_path, boot):
    with DataDirectory.open(tmp_path / "d", boot) as directory:
        directory.begin([])

    with DataDirectory.open(tmp_path / "d", boot) as directory:
        assert not directory.may_have_lost_page_cache
    boot.write_text("second-boot\n")
    with DataDirectory.open(tmp_path / "d", boot) as directory:
        assert directory.may_have_lost_page_cache
        directory.begin([])
        directory.mark_clean()
    boot.write_text("third-boot\n")
    with DataDirectory.open(tmp_path / "d", boot) as directory:
        assert not directory.may_have_lost_page_cache


def test_an_unknown_boot_counts_as_another_one(tmp_path):
    with DataDirectory.open(tmp_path / "d", tmp_path / "none") as directory:
        directory.begin([])

    with DataDirectory.open(tmp_path / "d", tmp_path / "none") as directory:
        assert directory.may_have_lost_page_cache


def test_a_directory_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(StorageError, match="--data-dir"):
        DataDirectory.open(tmp_path / "file" / "d")


def test_a_missing_vhosts_file_is_no_empty_broker(tmp_path, boot):
    with DataDirectory.open(tmp_path / "d", boot) as directory:
        directory.check_whole()
        data = directory.vhost_directory("/")
        data.mkdir()
        (data / "definitions.amqp").write_bytes(b"\x01\0\0\0")

        with pytest.raises(StorageError, match=r"vhosts\.json' is missing"):
            directory.check_whole()


def test_a_missing_users_file_is_no_empty_broker(tmp_path, boot):
    with DataDirectory.open(tmp_path / "d", boot) as directory:
        write_vhosts(directory.vhosts_file, ["/"])
        with pytest.raises(StorageError, match=r"users\.json' is missing"):
            directory.check_whole()

        write_users(directory.users_file, [])
        directory.check_whole()


@pytest.mark.parametrize("gone", [["users.json"], ["vhosts.json"], ["users.json", "vhosts.json"]])
def test_files_that_were_there_at_the_last_start_are_missed(tmp_path, boot, gone):
    with DataDirectory.open(tmp_path / "d", boot) as directory:
        write_users(directory.users_file, [])
        write_vhosts(directory.vhosts_file, [])
        directory.begin([])
    for name in gone:
        (tmp_path / "d" / name).unlink()

    with (
        DataDirectory.open(tmp_path / "d", boot) as directory,
        pytest.raises(StorageError, match=r"\.json' is missing.*to (create the default user again|start without)"),
    ):
        directory.check_whole()


def test_a_start_that_fails_before_its_logs_are_open_takes_nothing_away(tmp_path, boot):
    with DataDirectory.open(tmp_path / "d", boot) as directory:
        directory.begin([])
    boot.write_text("second-boot\n")

    for _ in range(2):
        with DataDirectory.open(tmp_path / "d", boot) as directory:
            assert directory.may_have_lost_page_cache
    with DataDirectory.open(tmp_path / "d", boot) as directory:
        directory.begin([])
    with DataDirectory.open(tmp_path / "d", boot) as directory:
        assert not directory.may_have_lost_page_cache


def test_a_clean_stop_is_known_until_the_logs_are_open(tmp_path, boot):
    with DataDirectory.open(tmp_path / "d", boot) as directory:
        directory.begin([])
        directory.mark_clean()

    for _ in range(2):
        with DataDirectory.open(tmp_path / "d", boot) as directory:
            assert directory.last_run.was_clean


def test_without_node_json_the_boot_is_unknown(tmp_path, boot):
    with DataDirectory.open(tmp_path / "d", boot) as directory:
        write_vhosts(directory.vhosts_file, [])
        directory.begin([])
    (tmp_path / "d" / "node.json").unlink()

    with DataDirectory.open(tmp_path / "d", boot) as directory:
        assert directory.may_have_lost_page_cache


def test_vhosts_made_and_deleted_later_are_listed_too(tmp_path, boot):
    with DataDirectory.open(tmp_path / "d", boot) as directory:
        directory.begin(["a", "b"])
        directory.note_vhosts(["b", "c"])

    with DataDirectory.open(tmp_path / "d", boot) as directory:
        assert [directory.has_proof(name) for name in "abc"] == [False, True, True]


@pytest.mark.parametrize("content", ["[]", '{"files": "users.json"}', '{"files": [1]}'])
def test_a_list_that_cannot_be_read_is_refused(tmp_path, boot, content):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "node.json").write_text(content)

    with pytest.raises(StorageError, match=r"node\.json"):
        DataDirectory.open(tmp_path / "d", boot)


def test_a_vhosts_directory_is_the_sha1_of_its_name():
    assert directory_name("/") == "42099b4af021e53fd8fd4e056c2568d7c2e3ffa8"


@pytest.mark.parametrize("format_", [3, 0, "2", None])
def test_a_directory_of_a_newer_version_is_refused(tmp_path, boot, format_):
    """Its `node.json` was read as this version's, and overwritten."""
    with DataDirectory.open(tmp_path, boot) as directory:
        directory.begin([])
    node = tmp_path / "node.json"
    newer = json.dumps(json.loads(node.read_text()) | {"format": format_})
    node.write_text(newer)

    with pytest.raises(StorageError, match=f"has the format {format_}, and this version knows the formats 1 to 2"):
        DataDirectory.open(tmp_path, boot)

    assert node.read_text() == newer


def test_a_start_raises_the_format_and_changes_nothing_else_of_the_last_run(tmp_path, boot):
    node = tmp_path / "node.json"
    older = {"format": 1, "boot_id": "another", "data_id": str(uuid.uuid4()), "files": ["users.json"], "later": 1}
    node.write_text(json.dumps(older))

    with DataDirectory.open(tmp_path, boot) as directory:
        assert directory.format == 1
        assert directory.raise_format() == 1
        assert directory.format == 2
        assert json.loads(node.read_text()) == older | {"format": 2}
        assert directory.raise_format() == 2

    with DataDirectory.open(tmp_path, boot) as directory:
        assert directory.raise_format() == 2
        assert directory.may_have_lost_page_cache
        directory.begin([])
        assert json.loads(node.read_text())["format"] == 2


def test_a_new_directory_has_the_newest_format_and_a_kill_before_its_first_log_loses_nothing(tmp_path, boot):
    with DataDirectory.open(tmp_path, boot) as directory:
        assert directory.raise_format() == 2
        made = directory.data_id

    with DataDirectory.open(tmp_path, boot) as directory:
        assert directory.raise_format() == 2
        assert (directory.data_id, directory.may_have_lost_page_cache) == (made, False)


def test_a_directory_without_node_json_may_have_lost_writes_also_when_its_format_was_raised(tmp_path, boot):
    write_vhosts(tmp_path / "vhosts.json", [])

    for before in (1, 2):
        with DataDirectory.open(tmp_path, boot) as directory:
            assert directory.raise_format() == before
            assert directory.may_have_lost_page_cache
