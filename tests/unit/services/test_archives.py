"""The broker's reports on archives, from a pipeline's files."""

import asyncio
import subprocess
import sys

import pytest

from penstock.archive import Manifest
from penstock.archive.folder import folder_of, write_manifest
from penstock.model.errors import CorruptError
from penstock.native import StreamState
from penstock.pipeline.archive_document import Archiving
from penstock.pipeline.archiving import Archived, archive_stream
from penstock.services.archives import Archives
from penstock.services.ports import ArchivedPart, ArchivedRows, ArchiveStanding
from support.archive_fakes import FakeLog


def part(log: FakeLog, queue_id: int = 1) -> ArchivedPart:
    time = log.messages.get(log.first, 0)
    state = StreamState(first=log.first, next=log.next, count=len(log.messages), first_timestamp_ms=time)
    return ArchivedPart("/", "events", "events", queue_id, state)


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

    found, at = asyncio.run(archives.runs(part(log), 1_002))
    assert (found.runs, at) == ([], None), "the log still has them"
    log.trim(log.next)
    found, at = asyncio.run(archives.runs(part(log), 1_002))
    assert (found.below, at) == (log.next, 3 + 2**32)
    assert [(run.first, run.end) for run in found.runs] == runs
    assert standing(archives, part(log)) == ArchiveStanding(1, 9 + 2**32, 3, found.bytes)


def test_the_archive_of_another_stream_is_none(archives, log):
    log.trim(6)

    assert standing(archives, part(log, queue_id=2)) is None
    assert asyncio.run(archives.piece(part(log, queue_id=2), ArchivedRows(1, 6))) == b""


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
