"""Moves old messages of a stream into an archive, each exactly once, even when the process is killed at any point.

Invariants: a file is on the disk before the manifest names it, the manifest is on the disk before the broker
drops what it names, and a run begins where the manifest ends. A run that died is simply repeated. The broker records
how far the archive is, so that neither a reader nor a run takes a folder that is not mounted for an empty archive.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.archive.columns import SCHEMA
from penstock.archive.errors import ArchiveError
from penstock.archive.folder import Step, folder_of, hold, read_manifest, remove_strays, write_manifest
from penstock.archive.manifest import ARCHIVE_GROUP, ArchivedPartition, Live, Manifest, belongs
from penstock.archive.writing import FileWriter
from penstock.client.records import Group, PartitionOffsets
from penstock.client.sync import connect
from penstock.pipeline.archive_document import Archiving
from penstock.pipeline.errors import PipelineError
from penstock.spark.described import Partition
from penstock.spark.errors import SparkConnectorError
from penstock.spark.ranges import OffsetRange, messages
from penstock.spark.wire import Wire

__all__ = ["Archived", "due", "run_archive"]

Note = Callable[[str], None]
DAY_US = 86_400_000_000
# A start of the broker that skips offsets skips so many: below, every offset had a message.
SKIPPED_MIN = 2**32


class Rows(Protocol):
    """A source of rows, such as `Wire`."""

    vhost: str

    def describe(self, streams: tuple[str, ...]) -> Mapping[str, Partition]: ...

    def read(self, wanted: OffsetRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]: ...


class Log(Protocol):
    """The stream as the broker has it, such as the client's `Stream`."""

    def offsets(self, at: str | None = None, *, archive: bool = True) -> list[PartitionOffsets]: ...
    def trim(self, before: int, partition: str | None = None) -> int: ...
    def groups(self) -> list[Group]: ...
    def store(self, group: str, offset: int, partition: str | None = None) -> None: ...


@dataclass
class Archived:
    """The result of a run."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0


def run_archive(archiving: Archiving, note: Note, step: Step = lambda _: None) -> Archived:
    """Run once, or until interrupted.

    `step` is called at each step after which a kill can come. Raises PipelineError.
    """
    done, begun = Archived(), monotonic()
    try:
        while True:
            run_once(archiving, done, note, step)
            if archiving.pause_seconds is None:
                break
            sleep(archiving.pause_seconds)
    except KeyboardInterrupt:
        note("stopping")
    except (ArchiveError, SparkConnectorError) as error:
        raise PipelineError(str(error)) from error
    done.seconds = monotonic() - begun
    return done


def run_once(archiving: Archiving, done: Archived, note: Note, step: Step) -> None:
    with Wire(archiving.uri) as wire, connect(archiving.uri, native=False) as connection:
        archive_stream(archiving, wire, connection.stream(archiving.stream), done, (note, step))


def archive_stream(archiving: Archiving, wire: Rows, stream: Log, done: Archived, told: tuple[Note, Step]) -> None:
    """Archive the due range of all partitions, one after another. Raises ArchiveError."""
    note, step = told
    folder = folder_of(archiving.folder, wire.vhost, archiving.stream)
    with hold(folder):
        manifest = read_manifest(folder, wire.vhost, archiving.stream)
        for path in remove_strays(folder, manifest):
            note(f"removed {path}: no manifest names it")
        # Described first, so that it has all messages that may be gone when they are read.
        described = wire.describe((archiving.stream,))
        recorded = {each.partition: each.offset or 0 for each in stream.groups() if each.name == ARCHIVE_GROUP}
        # The broker drops nothing that it could not read afterwards.
        for offsets in stream.offsets(archiving.older_than, archive=archiving.delete):
            name, known = offsets.partition, recorded.get(offsets.partition, 0)
            check_recorded(manifest, name, known, folder)
            run = PartitionRun(archiving, folder, wire, stream, offsets, described[name])
            manifest = run.archive(manifest, done, note, step)
            behind = manifest.partitions[name].next
            if behind - 1 > known:
                stream.store(ARCHIVE_GROUP, behind - 1, name)
                step("recorded")
            if archiving.delete:
                # Also drop messages that an earlier run archived and did not drop.
                stream.trim(behind, name)
                step("trimmed")


def check_recorded(manifest: Manifest, partition: str, recorded: int, folder: Path) -> None:
    """Raise ArchiveError when the folder has less of a partition than was archived, by the broker's record."""
    archived = manifest.partitions.get(partition)
    last = 0 if archived is None else archived.next - 1
    if last < recorded:
        raise ArchiveError(
            f"messages of '{partition}' were archived up to offset {recorded}, and {folder} has them up to {last}; "
            f"mount the archive there, or delete the group '{ARCHIVE_GROUP}' of the stream to begin another one"
        )


def due(
    partition: ArchivedPartition, offsets: PartitionOffsets, there: Partition, fail_on_data_loss: bool
) -> tuple[int, int]:
    """Return the range of a partition to archive now; pure. Raises ArchiveError.

    Messages between the archive and the log were removed before they were archived.
    """
    live = Live(offsets.first, offsets.next, offsets.first_timestamp_ms)
    if not belongs(partition, offsets.id, live):
        raise ArchiveError(
            f"the archive of '{offsets.partition}' belongs to an earlier stream of this name; move it away"
        )
    start = max(partition.next, 1)
    if partition.files and fail_on_data_loss and were_lost(partition, offsets, there):
        raise ArchiveError(lost(offsets.partition, start, offsets.first))
    start = max(start, offsets.first)
    end = offsets.next if offsets.at_timestamp is None else offsets.at_timestamp
    return start, max(start, end)


def were_lost(partition: ArchivedPartition, offsets: PartitionOffsets, there: Partition) -> bool:
    """Return whether there were messages between the archive and the log, or it is unknown.

    Offsets between them may have been skipped, so messages are counted.
    """
    if offsets.first <= partition.next:
        return False
    begin = partition.files[0].first
    if begin > SKIPPED_MIN or offsets.first > there.next:
        return True
    archived = begin - 1 + sum(file.rows for file in partition.files)
    return there.rows_before(offsets.first) > archived


def lost(partition: str, start: int, end: int) -> str:
    return (
        f"offsets {start} to {end - 1} of '{partition}' were removed before they were archived; "
        "set failOnDataLoss: false to skip them, and archive more often or keep messages longer"
    )


class PartitionRun:
    """One partition in one run."""

    def __init__(
        self,
        archiving: Archiving,
        folder: Path,
        wire: Rows,
        stream: Log,
        offsets: PartitionOffsets,
        there: Partition,
    ) -> None:
        self._archiving = archiving
        self._folder = folder
        self._wire = wire
        self._stream = stream
        self._offsets = offsets
        self._there = there

    def archive(self, manifest: Manifest, done: Archived, note: Note, step: Step) -> Manifest:
        """Write file after file, and the manifest after each; return the last manifest."""
        name = self._offsets.partition
        partition = manifest.partitions.get(name, ArchivedPartition(self._offsets.id))
        start, end = due(partition, self._offsets, self._there, self._archiving.fail_on_data_loss)
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
        """Yield files to finish, each with its end offset. A new day begins another file, and so does a full one."""
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
        """Yield the rows, cut where another day begins."""
        for batch in self._read(start, end):
            days = pc.run_end_encode(pc.divide(batch["timestamp"].cast(pa.int64()), DAY_US))
            begin = 0
            for run_end, date in zip(days.run_ends.to_pylist(), days.values.to_pylist(), strict=True):
                text = pa.scalar(date, pa.int32()).cast(pa.date32()).as_py().isoformat()
                yield text, batch.slice(begin, run_end - begin)
                begin = run_end

    def _read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Read the range from the stream. Raises ArchiveError when some of it is gone meanwhile, or corrupt."""
        at = start
        for batch in self._wire.read(OffsetRange(self._offsets.partition, start, end), SCHEMA.names):
            if not batch.num_rows:
                continue
            behind = batch["offset"][-1].as_py() + 1
            self._check(at, behind, batch.num_rows)
            at = behind
            yield batch
        self._check(at, end, 0)

    def _check(self, start: int, end: int, rows: int) -> None:
        """Check that a range had as many messages as it should; offsets may be skipped."""
        missing = self._there.rows_between(start, end) - rows
        if missing <= 0 or not self._archiving.fail_on_data_loss:
            return
        (now,) = (each for each in self._stream.offsets(archive=False) if each.partition == self._offsets.partition)
        if now.first > start:
            raise ArchiveError(lost(self._offsets.partition, start, min(now.first, end)))
        raise ArchiveError(
            f"the broker dropped {messages(missing)} of '{self._offsets.partition}' between offsets {start} and {end} "
            "as corrupt: see its log; set failOnDataLoss: false to archive the others"
        )
