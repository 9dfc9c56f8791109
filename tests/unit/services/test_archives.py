"""The broker's reports on archives, from a pipeline's files."""

import asyncio
import struct
import subprocess
import sys

import pytest

from penstock.archive import Manifest
from penstock.archive.folder import folder_of, write_manifest
from penstock.model.errors import CorruptError
from penstock.native import StreamState
from penstock.pipeline.archive_document import Archiving
from penstock.pipeline.archiving import Archived, archive_stream
from penstock.services.archives import Archives, NoArchives
from penstock.services.ports import ArchivedPart, ArchivedRows, ArchiveStanding
from support.archive_fakes import FakeLog


def part(log: FakeLog, queue_id: int = 1, archived_next: int = 1) -> ArchivedPart:
    time = log.messages.get(log.first, 0)
    state = StreamState(first=log.first, next=log.next, count=len(log.messages), first_timestamp_ms=time)
    return ArchivedPart("/", "events", "events", queue_id, state, archived_next)


@pytest.fixture
def log(tmp_path):
    log = FakeLog()
    log.publish(range(1_000, 1_010))
    archiving = Archiving("a", "penstock://x", "events", tmp_path, None, False, True, 2**27, None)
    archive_stream(archiving, log, log, Archived(), (lambda _: None, lambda _: None))
    return log


@pytest.fixture
def archives(tmp_path):
    archives = Archives(tmp_path)
    yield archives
    archives.close()


def standing(archives, of, timestamp_ms=None):
    return asyncio.run(archives.standing(of, timestamp_ms))


def offsets(archives, of, timestamp_ms=None):
    return asyncio.run(archives.offsets(of, timestamp_ms))


def piece(archives, of, wanted):
    return asyncio.run(archives.piece(of, wanted))


def test_nothing_is_archived_below_a_log_that_still_has_it(archives, log):
    assert standing(archives, part(log)) is None
    assert standing(archives, part(FakeLog(name="events"))) is None


def test_what_the_log_has_no_more_is_told_with_the_time_that_was_asked_for(archives, log):
    log.trim(6)

    assert standing(archives, part(log)) == ArchiveStanding(1, 11, 5, 5)
    assert standing(archives, part(log), 1_003) == ArchiveStanding(1, 11, 5, 5, 4)
    assert standing(archives, part(log), 1_006) == ArchiveStanding(1, 11, 5, 5), "that message is in the log"


def test_offsets_with_messages_are_told_without_those_that_were_skipped(archives, tmp_path):
    log = FakeLog()
    log.publish([1_000, 1_001])
    log.skip(2**32)
    log.publish([1_002])
    log.skip(5)
    archive_stream(
        Archiving("a", "penstock://x", "events", tmp_path, None, False, True, 2**27, None),
        log,
        log,
        Archived(),
        (lambda _: None, lambda _: None),
    )
    runs = [(1, 3), (3 + 2**32, 4 + 2**32)]

    found = offsets(archives, part(log), 1_002)
    assert (found.runs.runs, found.at_timestamp) == ([], None), "the log still has them"
    log.trim(log.next)
    found = offsets(archives, part(log), 1_002)
    assert (found.runs.below, found.at_timestamp, found.error) == (log.next, 3 + 2**32, None)
    assert [(run.first, run.end) for run in found.runs.runs] == runs
    assert standing(archives, part(log)) == ArchiveStanding(1, 9 + 2**32, 3, found.runs.bytes)


def test_the_archive_of_another_stream_is_none(archives, log):
    log.trim(6)

    assert standing(archives, part(log, queue_id=2)) is None
    assert asyncio.run(archives.piece(part(log, queue_id=2), ArchivedRows(1, 6))) == b""


@pytest.mark.parametrize("is_set", [True, False])
def test_an_archive_that_is_not_there_is_told_to_those_that_need_it(archives, log, tmp_path, is_set):
    log.trim(6)
    there = part(log, archived_next=11)
    assert (piece(archives, there, ArchivedRows(1, 6)), offsets(archives, there).error) != (b"", None)
    folder_of(tmp_path, "/", "events").rename(tmp_path / "elsewhere")
    without = archives if is_set else NoArchives()
    found = "has none of them; mount the archive there" if is_set else "'archive_dir' is not set; set it"

    for ask in (lambda: standing(without, there), lambda: piece(without, there, ArchivedRows(1, 6))):
        with pytest.raises(CorruptError, match=f"messages of 'events' were archived up to offset 10, and .*{found}"):
            ask()
    assert found in offsets(without, there, 1_003).error
    assert piece(without, there, ArchivedRows(1, 6, skip_unreadable=True)) == b""
    assert piece(without, there, ArchivedRows(6, 11)) == b"", "the log has them"


def test_what_the_log_still_has_needs_no_archive(archives, log, tmp_path):
    folder_of(tmp_path, "/", "events").rename(tmp_path / "elsewhere")
    there = part(log, archived_next=11)

    assert standing(archives, there) is None
    assert offsets(archives, there).error is None
    assert offsets(NoArchives(), there).error is None
    (tmp_path / "%2F").rmdir()
    (tmp_path / "%2F").write_bytes(b"no folder")
    assert offsets(archives, there).error is None


def test_an_older_copy_of_a_manifest_has_what_it_has_and_tells_the_rest(archives, log, tmp_path):
    log.trim(11)
    log.publish([1_010])

    found = offsets(archives, part(log, archived_next=15))

    assert [(run.first, run.end) for run in found.runs.runs] == [(1, 11)]
    assert found.error is None, "the log has offset 11"
    log.trim(12)
    log.publish([1_011])
    found = offsets(archives, part(log, archived_next=15))
    assert "has only those up to offset 10" in found.error
    assert piece(archives, part(log, archived_next=15), ArchivedRows(1, 11)) != b""
    with pytest.raises(CorruptError, match="has only those up to offset 10"):
        piece(archives, part(log, archived_next=15), ArchivedRows(11, 12))


def test_a_file_that_cannot_be_read_fails_its_readers_or_is_passed_over(archives, log, tmp_path):
    log.trim(11)
    (file,) = folder_of(tmp_path, "/", "events").glob("date=*/*.parquet")
    file.unlink()
    there = part(log, archived_next=11)

    with pytest.raises(CorruptError, match="No such file or directory; restore a copy of it"):
        piece(archives, there, ArchivedRows(3, 8, ["offset"]))
    found = piece(archives, there, ArchivedRows(3, 8, ["offset"], skip_unreadable=True))

    next_, seen, length = struct.unpack_from("<QQI", found)
    assert (next_, seen, length) == (8, 0, len(found) - 20)
    assert "No such file" in offsets(archives, there, 1_003).error
    assert len(offsets(archives, there, 1_003).runs.runs) == 1


def test_a_manifest_that_was_replaced_is_read_again(archives, log, tmp_path):
    log.trim(6)
    assert standing(archives, part(log)) is not None

    folder = folder_of(tmp_path, "/", "events")
    write_manifest(folder, Manifest("/", "events"), lambda _: None)
    assert standing(archives, part(log)) is None

    write_manifest(folder, Manifest("/", "other"), lambda _: None)
    with pytest.raises(CorruptError, match="not of 'events'"):
        standing(archives, part(log))


def test_without_pyarrow_the_setting_is_refused_with_the_way_out():
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from pathlib import Path\n"
        "from penstock.services.archives import Archives\n"
        "Archives(Path('.'))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "pyarrow is missing; install 'penstock[archive]'" in done.stderr
