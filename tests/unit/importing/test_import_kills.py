"""An import that is killed before any of its steps leaves no data directory or a whole one, and can be repeated.

A half import looked like a new broker: its folders were marked as if they were being deleted, and a start removed them.
"""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.importing.writing import Imported, import_lavinmq
from penstock.model.errors import PreconditionFailedError, StorageError
from penstock.storage import DataDirectory, holds_data, read_users, read_vhosts
from support.kills import STEPS_MAX, killed_before
from support.lavinmq import LavinVhost, message, queue, write_directory

USER: dict[str, Any] = {"name": "anna", "password_hash": "", "hashing_algorithm": None, "tags": "", "permissions": {}}
VHOSTS = ["/", "shop"]
STRIDE = 6
"""An import syncs too many files for a kill before each of its steps."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "lavinmq"
    path.mkdir()
    write_directory(path, [USER], VHOSTS)
    for name in VHOSTS:
        vhost = LavinVhost(path, name)
        vhost.write_definitions(queue("q"))
        vhost.write_queue("q", [message(number + 1, "", "q", b"x") for number in range(3)])
    return path


def take(source: Path, target: Path) -> Imported:
    return import_lavinmq(source, target, is_partial=False, on_progress=lambda _done, _total: None)


def assert_whole(target: Path) -> None:
    assert read_vhosts(target / "vhosts.json") == VHOSTS
    assert [user.name for user in read_users(target / "users.json") or []] == ["anna"]
    with DataDirectory.open(target) as opened:
        opened.check_whole()
        assert all(map(opened.has_proof, VHOSTS))
    assert not (target / ".importing").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("first", "is_mount_point"), [(1, False), (4, True)])
def test_an_import_that_is_killed_at_any_step_is_refused_or_whole_and_can_be_repeated(
    source: Path, tmp_path: Path, first: int, is_mount_point: bool
) -> None:
    refused_count = 0

    for step in range(first, STEPS_MAX, STRIDE):
        target = tmp_path / f"new-{step}"
        if is_mount_point:
            (target / "lost+found").mkdir(parents=True)
        was_killed = killed_before(step, partial(take, source, target))
        if holds_data(target):
            with pytest.raises(PreconditionFailedError, match="is not empty"):
                take(source, target)
        else:
            if target.exists() and {path.name for path in target.iterdir()} - {"lost+found"}:
                refused_count += 1
                with pytest.raises(StorageError, match="an import that was not completed"):
                    DataDirectory.open(target)
            take(source, target)
        assert_whole(target)
        if not was_killed:
            break
    assert not was_killed
    assert refused_count > 10, "every step between leaves one that is refused"


def test_a_repeated_import_that_is_killed_too_can_be_repeated(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "new"

    for step in range(1, STEPS_MAX, 2 * STRIDE):
        was_killed = killed_before(step, partial(take, source, target))
        assert not holds_data(target) or (target / "vhosts.json").exists()
        if not was_killed or holds_data(target):
            break

    assert_whole(target)


def test_an_unfinished_import_with_other_files_is_not_cleared(source: Path, tmp_path: Path) -> None:
    (tmp_path / "new" / ".importing").mkdir(parents=True)
    (tmp_path / "new" / "note").write_text("mine")

    with pytest.raises(PreconditionFailedError, match="is not empty"):
        take(source, tmp_path / "new")
    assert (tmp_path / "new" / "note").exists()


def test_an_import_clears_an_unfinished_restore(source: Path, tmp_path: Path) -> None:
    (tmp_path / "new" / ".restoring").mkdir(parents=True)
    (tmp_path / "new" / "users.json").write_text("[]")

    take(source, tmp_path / "new")

    assert_whole(tmp_path / "new")
    assert not (tmp_path / "new" / ".restoring").exists()


def test_an_interrupted_import_leaves_nothing(source: Path, tmp_path: Path) -> None:
    def interrupt(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_lavinmq(source, tmp_path / "new", is_partial=False, on_progress=interrupt)

    assert not (tmp_path / "new").exists()
