"""A restore that is killed before any of its steps leaves no data directory or a whole one, and can be repeated."""

import io
from functools import partial
from pathlib import Path

import pytest

from penstock.model.errors import PreconditionFailedError, StorageError
from penstock.storage import DataDirectory, holds_data, read_vhosts, restore_archive
from support.archives import archive_of_one_vhost
from support.kills import STEPS_MAX, killed_before


def restore(archive: bytes, target: Path) -> None:
    restore_archive(io.BytesIO(archive).read, "the.tar", target)


def assert_whole(target: Path) -> None:
    assert read_vhosts(target / "vhosts.json") == ["a/b"]
    with DataDirectory.open(target) as opened:
        opened.check_whole()
        assert opened.has_proof("a/b")
    assert not (target / ".restoring").exists()


@pytest.mark.parametrize("is_mount_point", [False, True])
def test_a_restore_that_is_killed_at_any_step_is_refused_or_whole_and_can_be_repeated(
    tmp_path: Path, is_mount_point: bool
) -> None:
    archive = archive_of_one_vhost(tmp_path)
    whole_count = 0

    for step in range(1, STEPS_MAX):
        target = tmp_path / f"new-{step}"
        if is_mount_point:
            (target / "lost+found").mkdir(parents=True)
        was_killed = killed_before(step, partial(restore, archive, target))
        if holds_data(target):
            whole_count += 1
            with pytest.raises(PreconditionFailedError, match="is not empty"):
                restore(archive, target)
        else:
            if (target / ".restoring").exists():
                with pytest.raises(StorageError, match="a restore that was not completed"):
                    DataDirectory.open(target)
            restore(archive, target)
        assert_whole(target)
        if not was_killed:
            break
    assert step < STEPS_MAX - 1
    assert whole_count > 1, "the last steps leave a whole one"


def test_a_repeated_restore_that_is_killed_too_can_be_repeated(tmp_path: Path) -> None:
    archive = archive_of_one_vhost(tmp_path)
    target = tmp_path / "new"

    for step in range(1, STEPS_MAX, 3):
        if not killed_before(step, partial(restore, archive, target)):
            break
        assert not holds_data(target) or (target / "vhosts.json").exists()
        if holds_data(target):
            break

    assert_whole(target)


def test_an_unfinished_restore_with_other_files_is_not_cleared(tmp_path: Path) -> None:
    (tmp_path / "new" / ".restoring").mkdir(parents=True)
    (tmp_path / "new" / "users.json").write_text("[]")
    (tmp_path / "new" / "note").write_text("mine")

    with pytest.raises(PreconditionFailedError, match="is not empty"):
        restore(archive_of_one_vhost(tmp_path), tmp_path / "new")
    assert (tmp_path / "new" / "users.json").exists()


def test_a_restore_beside_another_one_is_refused(tmp_path: Path) -> None:
    archive = archive_of_one_vhost(tmp_path)
    content = io.BytesIO(archive)
    refused: list[bool] = []

    def read(count: int) -> bytes:
        if content.tell() > 1 << 20 and not refused:  # the list comes before the directory
            with pytest.raises(StorageError, match="is being filled by another process"):
                restore(archive, tmp_path / "new")
            refused.append(True)
        return content.read(count)

    restore_archive(read, "the.tar", tmp_path / "new")

    assert refused
    assert_whole(tmp_path / "new")
