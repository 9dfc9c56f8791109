"""Moves what is old of a stream into an archive, every message exactly once, whenever and wherever it is killed.

What must stay true: a file is on the disk before the manifest names it, the manifest is on the disk before the broker
drops what it names, and a run begins where the manifest ends. So a run that died is simply run again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import flight

from penstock.archive.columns import SCHEMA
from penstock.archive.errors import ArchiveError
from penstock.archive.folder import Step, folder_of, hold, read_manifest, remove_strays, write_manifest
from penstock.archive.manifest import ArchivedPartition, Live, Manifest, belongs
from penstock.archive.writing import FileWriter
from penstock.client.records import PartitionOffsets
from penstock.client.sync import connect
from penstock.pipeline.archive_document import Archiving
from penstock.pipeline.errors import PipelineError
from penstock.spark.ranges import OffsetRange
from penstock.spark.wire import Wire

__all__ = ["Archived", "due", "run_archive"]

Note = Callable[[str], None]
DAY_US = 86_400_000_000


class Rows(Protocol):
    """Where rows come from: `Wire` is one."""

    vhost: str

    def read(self, wanted: OffsetRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]: ...


class Log(Protocol):
    """The stream as the broker has it: the client's `Stream` is one."""

    def offsets(self, at: str | None = None) -> list[PartitionOffsets]: ...
    def trim(self, before: int, partition: str | None = None) -> int: ...


@dataclass
class Archived:
    """What a run did."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0


def run_archive(archiving: Archiving, note: Note, step: Step = lambda _: None) -> Archived:
    """Once, or on and on until interrupted. `step` hears of each step that can be the last. Raises PipelineError."""
    done, begun = Archived(), monotonic()
    try:
        while True:
            run_once(archiving, done, note, step)
            if archiving.pause_seconds is None:
                break
            sleep(archiving.pause_seconds)
    except KeyboardInterrupt:
        note("stopping")
    except (ArchiveError, flight.FlightError) as error:
        raise PipelineError(str(error)) from error
    done.seconds = monotonic() - begun
    return done


def run_once(archiving: Archiving, done: Archived, note: Note, step: Step) -> None:
    with Wire(archiving.uri) as wire, connect(archiving.uri, native=False) as connection:
        archive_stream(archiving, wire, connection.stream(archiving.stream), done, (note, step))


def archive_stream(archiving: Archiving, wire: Rows, stream: Log, done: Archived, told: tuple[Note, Step]) -> None:
    """What is due of all partitions, one after another. Raises ArchiveError."""
    note, step = told
    folder = folder_of(archiving.folder, wire.vhost, archiving.stream)
    with hold(folder):
        manifest = read_manifest(folder, wire.vhost, archiving.stream)
        for path in remove_strays(folder, manifest):
            note(f"removed {path}: no manifest names it")
        for offsets in stream.offsets(archiving.older_than):
            run = PartitionRun(archiving, folder, wire, stream, offsets)
            manifest = run.archive(manifest, done, note, step)
            if archiving.delete:
                # What an earlier run archived and did not come to drop goes as well.
                stream.trim(manifest.partitions[offsets.partition].next, offsets.partition)
                step("trimmed")


def due(partition: ArchivedPartition, offsets: PartitionOffsets, fail_on_data_loss: bool) -> tuple[int, int]:
    """From where and up to where a partition is to be archived now; pure. Raises ArchiveError.

    What lies between the archive and the log went before it was archived.
    """
    live = Live(offsets.first, offsets.next, offsets.first_timestamp_ms)
    if not belongs(partition, offsets.id, live):
        raise ArchiveError(
            f"the archive of '{offsets.partition}' is that of an earlier stream of this name; move it to another place"
        )
    start = max(partition.next, 1)
    if partition.files and offsets.first > start and fail_on_data_loss:
        raise ArchiveError(lost(offsets.partition, start, offsets.first))
    start = max(start, offsets.first)
    end = offsets.next if offsets.at_timestamp is None else offsets.at_timestamp
    return start, max(start, end)


def lost(partition: str, start: int, end: int) -> str:
    return (
        f"offsets {start} to {end - 1} of '{partition}' went before they were archived; "
        "set failOnDataLoss: false to go on behind them, and archive more often or keep messages longer"
    )


class PartitionRun:
    """One partition, in one run."""

    def __init__(self, archiving: Archiving, folder: Path, wire: Rows, stream: Log, offsets: PartitionOffsets) -> None:
        self._archiving = archiving
        self._folder = folder
        self._wire = wire
        self._stream = stream
        self._offsets = offsets

    def archive(self, manifest: Manifest, done: Archived, note: Note, step: Step) -> Manifest:
        """Writes file after file, the manifest behind each; gives the last one."""
        name = self._offsets.partition
        partition = manifest.partitions.get(name, ArchivedPartition(self._offsets.id))
        start, end = due(partition, self._offsets, self._archiving.fail_on_data_loss)
        manifest = manifest.with_partition(name, partition)
        for writer, behind in self._written(start, end):
            file = writer.finish(behind, step)
            partition = partition.with_file(file)
            manifest = manifest.with_partition(name, partition)
            write_manifest(self._folder, manifest, step)
            note(f"{file.path}: offsets {file.first} to {file.next - 1}, {file.rows:,} rows, {file.size:,} bytes")
            done.rows += file.rows
            done.bytes += file.size
            done.files += 1
        return manifest

    def _written(self, start: int, end: int) -> Iterator[tuple[FileWriter, int]]:
        """Files that are to be finished, each with where it ends. A day begins another file, and so does a full one."""
        writer, day, at = None, "", start
        try:
            for date, rows in self._days(start, end):
                if writer is not None and (date != day or writer.size >= self._archiving.file_bytes_max):
                    yield writer, at
                    writer = None
                if writer is None:
                    writer, day = FileWriter(self._folder, date, self._offsets.partition, start), date
                writer.write(rows)
                start = at = rows["offset"][-1].as_py() + 1
            if writer is not None:
                yield writer, end
        finally:
            if writer is not None:
                writer.abandon()

    def _days(self, start: int, end: int) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Rows as they come, cut where another day begins."""
        for batch in self._read(start, end):
            days = pc.run_end_encode(pc.divide(batch["timestamp"].cast(pa.int64()), DAY_US))
            begin = 0
            for run_end, date in zip(days.run_ends.to_pylist(), days.values.to_pylist(), strict=True):
                text = pa.scalar(date, pa.int32()).cast(pa.date32()).as_py().isoformat()
                yield text, batch.slice(begin, run_end - begin)
                begin = run_end

    def _read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The range as the stream has it. Raises ArchiveError when retention took some of it meanwhile."""
        at = start
        for batch in self._wire.read(OffsetRange(self._offsets.partition, start, end), SCHEMA.names):
            if not batch.num_rows:
                continue
            self._check(at, batch)
            at = batch["offset"][-1].as_py() + 1
            yield batch

    def _check(self, at: int, batch: pa.RecordBatch) -> None:
        """Numbers may be skipped; what is gone from the lower end was there."""
        first = batch["offset"][0].as_py()
        if first == at or not self._archiving.fail_on_data_loss:
            return
        (now,) = (each for each in self._stream.offsets() if each.partition == self._offsets.partition)
        if now.first > at:
            raise ArchiveError(lost(self._offsets.partition, at, first))
