"""Archiving a stream: days, files, lost and skipped offsets, and an end at every step."""

from pathlib import Path

import pyarrow.dataset
import pytest

from penstock.archive import ArchiveError
from penstock.archive.folder import folder_of, read_manifest
from penstock.archive.manifest import ARCHIVE_GROUP
from penstock.pipeline.archive_document import Archiving
from penstock.pipeline.archiving import Archived, archive_stream
from support.archive_fakes import FakeLog

DAY = 86_400_000


class Killed(BaseException):
    """The process is gone: nothing is cleaned up."""


def archiving(folder: Path, **more: object) -> Archiving:
    options = {"delete": True, "fail_on_data_loss": True, "file_bytes_max": 2**27, "pause_seconds": None, **more}
    return Archiving("test", "penstock://x", "events", folder, "1h", **options)  # type: ignore[arg-type]


def run(folder: Path, log: FakeLog, step=lambda _: None, **more: object) -> Archived:
    done = Archived()
    archive_stream(archiving(folder, **more), log, log, done, (lambda _: None, step))
    return done


def files(folder: Path):
    manifest = read_manifest(folder_of(folder, "/", "events"), "/", "events")
    return manifest.partitions["events"].files


def stored(folder: Path) -> list[int]:
    """Return the offsets in the files, read as a data set."""
    source = folder_of(folder, "/", "events")
    if not any(source.glob("date=*/*.parquet")):
        return []
    table = pyarrow.dataset.dataset(source, format="parquet", partitioning="hive").to_table(columns=["offset"])
    return sorted(table["offset"].to_pylist())


def test_each_day_has_files_of_its_own(tmp_path):
    log = FakeLog()
    log.publish([DAY - 2, DAY - 1, DAY, DAY + 1, 2 * DAY - 1, 3 * DAY])

    done = run(tmp_path, log)

    assert [(each.path[:15], each.first, each.next, each.rows) for each in files(tmp_path)] == [
        ("date=1970-01-01", 1, 3, 2),
        ("date=1970-01-02", 3, 6, 3),
        ("date=1970-01-04", 6, 7, 1),
    ]
    assert (done.rows, done.files) == (6, 3)
    assert log.messages == {}


def test_a_clock_that_goes_back_over_midnight_leaves_every_row_under_its_own_day(tmp_path):
    log = FakeLog()
    log.publish([DAY - 1, DAY, DAY - 1, DAY])

    run(tmp_path, log)

    assert [each.path[:15] for each in files(tmp_path)] == ["date=1970-01-01", "date=1970-01-02"] * 2


def test_full_files_are_followed_by_others(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.archive.writing.GROUP_ROWS", 7)
    log = FakeLog()
    log.publish([1] * 100)

    run(tmp_path, log, file_bytes_max=1)

    assert len(files(tmp_path)) == 15
    assert stored(tmp_path) == list(range(1, 101))


def test_a_run_begins_where_the_last_one_ended_and_one_without_work_leaves_nothing(tmp_path):
    log = FakeLog()
    log.publish([1] * 10)
    run(tmp_path, log, delete=False)
    before = files(tmp_path)

    assert run(tmp_path, log, delete=False).files == 0
    assert files(tmp_path) == before
    log.publish([2] * 5)
    assert run(tmp_path, log, delete=False).rows == 5

    assert [(each.first, each.next) for each in files(tmp_path)] == [(1, 11), (11, 16)]
    assert len(log.messages) == 15


def test_numbers_that_were_skipped_are_no_loss(tmp_path):
    log = FakeLog()
    log.publish([1] * 5)
    log.skip(2**32)
    log.publish([1] * 5)

    run(tmp_path, log, delete=False)
    log.skip(2**32)
    log.publish([1] * 5)
    run(tmp_path, log, delete=False)

    assert stored(tmp_path) == sorted(log.messages)


def test_numbers_that_were_skipped_behind_the_archive_are_no_loss_when_the_log_begins_behind_them(tmp_path):
    """A run failed for offsets that no message ever had."""
    log = FakeLog()
    log.publish([1] * 5)
    run(tmp_path, log)
    log.skip(2**32)
    log.publish([1] * 7)

    assert run(tmp_path, log).rows == 7

    log.publish([1] * 9)
    log.trim(log.next - 4)
    with pytest.raises(ArchiveError, match="were removed before they were archived"):
        run(tmp_path, log)
    assert run(tmp_path, log, fail_on_data_loss=False).rows == 4


def test_corrupt_messages_end_the_run_unless_told_to_leave_them_out(tmp_path):
    log = FakeLog(corrupt={3, 10})
    log.publish([1] * 10)

    with pytest.raises(ArchiveError, match="dropped 1 message of 'events' between offsets 1 and 9 as corrupt"):
        run(tmp_path, log)
    log.corrupt = {10}
    with pytest.raises(ArchiveError, match="dropped 1 message of 'events' between offsets 10 and 11 as corrupt"):
        run(tmp_path, log)

    assert run(tmp_path, log, fail_on_data_loss=False).rows == 9


def test_what_went_while_it_was_read_ends_the_run_and_is_not_in_the_manifest(tmp_path):
    log = FakeLog(lost_below=(2, 30))
    log.publish([1] * 50)

    with pytest.raises(ArchiveError, match="offsets 15 to 29 of 'events' were removed before they were archived"):
        run(tmp_path, log)

    log.lost_below = None
    run(tmp_path, log, fail_on_data_loss=False)
    assert stored(tmp_path) == list(range(30, 51))


def test_an_end_of_the_range_that_went_while_it_was_read_is_no_success_either(tmp_path):
    log = FakeLog(lost_below=(2, 51))
    log.publish([1] * 50)

    with pytest.raises(ArchiveError, match="offsets 15 to 50 of 'events' were removed before they were archived"):
        run(tmp_path, log)


def steps_of_a_run(tmp_path: Path) -> list[str]:
    log = FakeLog()
    steps: list[str] = []
    log.publish([1, 1, DAY, DAY])
    run(tmp_path, log, steps.append)
    return steps


def test_a_run_that_ends_at_any_step_is_made_up_for_by_the_next(tmp_path):
    steps = steps_of_a_run(tmp_path / "count")
    one = ["file written", "file synced", "file named", "manifest written", "manifest replaced"]
    assert steps == [*one, *one, "recorded", "trimmed"]

    for last in range(len(steps)):
        folder, log = tmp_path / f"step-{last}", FakeLog()
        log.publish([1, 1, DAY, DAY])
        left = [last]

        def step(name: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Killed

        with pytest.raises(Killed):
            run(folder, log, step)
        archived = {offset for each in files(folder) for offset in range(each.first, each.next)} if last >= 4 else set()
        assert archived | set(log.messages) == {1, 2, 3, 4}, "what the broker dropped is in the manifest"
        log.publish([DAY] * 3)

        run(folder, log)

        assert stored(folder) == list(range(1, 8)), f"ended at '{steps[last]}'"
        named = {folder_of(folder, "/", "events") / each.path for each in files(folder)}
        assert named == set(folder_of(folder, "/", "events").glob("date=*/*"))


def test_a_folder_that_is_not_mounted_is_not_taken_for_an_empty_archive(tmp_path):
    log = FakeLog()
    log.publish([1, 2, 3])
    run(tmp_path / "mounted", log)
    log.publish([4, 5])

    with pytest.raises(
        ArchiveError, match=r"archived up to offset 3, and .* has them up to 0; mount the archive there"
    ):
        run(tmp_path / "empty", log)
    assert sorted(log.messages) == [4, 5], "nothing was dropped"
    run(tmp_path / "mounted", log)

    assert stored(tmp_path / "mounted") == [1, 2, 3, 4, 5]
    log.stored.clear()
    log.publish([6])
    run(tmp_path / "empty", log)
    assert stored(tmp_path / "empty") == [6], "the group was deleted to begin another archive"


def test_a_run_records_what_an_earlier_one_archived_and_did_not_record(tmp_path):
    log = FakeLog()
    log.publish([1, 2, 3])
    run(tmp_path, log)
    log.stored.clear()

    run(tmp_path, log)

    assert log.stored == {ARCHIVE_GROUP: 3}
