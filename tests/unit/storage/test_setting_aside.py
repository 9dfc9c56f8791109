"""A replica's log is set aside whole, and nothing of it is deleted, also when that was interrupted."""

from pathlib import Path

import pytest

from penstock.storage.setting_aside import SET_ASIDE, complete, forget_corrupt, set_aside, set_aside_corrupt
from support.log_folder import OF_A_LOG, OTHERS, folder, names

REPLICA = "a" * 32


def test_the_files_of_a_log_leave_those_of_the_virtual_host(tmp_path: Path) -> None:
    directory = folder(tmp_path)

    place = set_aside(directory, REPLICA)

    assert place == tmp_path / SET_ASIDE / f"0123.{REPLICA}"
    assert names(place) == sorted(OF_A_LOG)
    assert names(directory) == sorted(OTHERS)
    complete(directory)
    assert names(directory) == sorted(OTHERS)


@pytest.mark.parametrize("steps", range(len(OF_A_LOG) + 1))
def test_an_interrupted_move_is_completed_and_its_rest_is_never_that_replica(
    tmp_path: Path, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, done = folder(tmp_path), 0
    rename = Path.rename

    def interrupted(path: Path, target: Path) -> Path:
        nonlocal done
        done += 1
        if done > steps:
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            set_aside(directory, REPLICA)
    assert (directory / "replica").exists() == (steps == 0)

    complete(directory)

    assert names(tmp_path / SET_ASIDE / f"0123.{REPLICA}") == sorted(OF_A_LOG)
    assert names(directory) == sorted(OTHERS)


def test_a_log_that_was_copied_back_is_set_aside_beside_the_first_copy(tmp_path: Path) -> None:
    """The second time failed, because the folder was there, and the replica was never opened again."""
    directory = folder(tmp_path)
    first = set_aside(directory, REPLICA)
    for name in OF_A_LOG:
        (directory / name).write_text("again")

    second = set_aside(directory, REPLICA)

    assert (second.name, names(second)) == (f"{first.name}.2", sorted(OF_A_LOG))
    assert (first / "synced").read_text() == "synced"
    assert names(directory) == sorted(OTHERS)


def test_corrupt_logs_are_deleted_and_those_with_lost_messages_are_kept(tmp_path: Path) -> None:
    directory = folder(tmp_path)
    lost = set_aside(directory, REPLICA)
    for name in OF_A_LOG:
        (directory / name).write_text("again")
    corrupt = set_aside_corrupt(directory, "b" * 32)
    assert names(corrupt) == sorted(OF_A_LOG)

    forget_corrupt(directory)

    assert names(tmp_path / SET_ASIDE) == [lost.name]
