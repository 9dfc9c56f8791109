"""The log of a replica that has left is deleted whole, and nothing else, also when that was interrupted."""

from pathlib import Path

import pytest

from penstock.storage import leaving
from penstock.storage.leaving import complete_deletion, delete_log
from support.log_folder import OF_A_LOG, OTHERS, folder, names


def test_the_files_of_a_log_are_deleted_and_those_of_the_virtual_host_stay(tmp_path: Path) -> None:
    directory = folder(tmp_path)

    delete_log(directory)

    assert names(directory) == sorted(OTHERS)
    complete_deletion(directory)
    assert names(directory) == sorted(OTHERS)


def test_a_log_that_was_not_left_is_kept(tmp_path: Path) -> None:
    directory = folder(tmp_path)

    complete_deletion(directory)

    assert names(directory) == sorted((*OF_A_LOG, *OTHERS))


@pytest.mark.parametrize("step", range(4))
def test_an_interrupted_deletion_is_completed_and_passes_for_no_replica(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = folder(tmp_path)
    done = 0

    def interrupt(_: Path) -> None:
        nonlocal done
        done += 1
        if done > step:
            raise InterruptedError

    monkeypatch.setattr(leaving, "sync_directory", interrupt)
    if step < 3:
        with pytest.raises(Exception, match=r"cannot be deleted|^$"):
            delete_log(directory)
        assert "replica" not in names(directory)
    else:
        delete_log(directory)
    monkeypatch.undo()

    complete_deletion(directory)

    assert names(directory) == sorted(OTHERS)
