"""Writes one file of an archive: a row group at a time, so that memory holds only one, however large the file.

The file gets its name only when it is whole and on the disk. It belongs to the archive only once the manifest names it.
"""

import contextlib
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.archive.columns import SCHEMA
from penstock.archive.folder import UNFINISHED, Step, file_name, make_folder, replace_file
from penstock.archive.manifest import ArchivedFile, append_run

__all__ = ["FileWriter"]

# A reader takes a whole row group: about this size before compression.
GROUP_BYTES = 8 * 2**20
GROUP_ROWS = 128 * 1024
LEVEL = 3


class FileWriter:
    """Writer of the rows of one partition and one day, in the order of their offsets."""

    def __init__(self, folder: Path, date: str, partition: str, first: int) -> None:
        """Open a file whose range begins at `first`, even when the first row comes later."""
        self._folder = folder
        self._day = folder / f"date={date}"
        self._partition = partition
        self._first = first
        make_folder(self._day)
        self._unfinished = self._day / f"{UNFINISHED}-{file_name(partition)}"
        self._sink = self._unfinished.open("wb")
        self._writer = pq.ParquetWriter(
            self._sink,
            SCHEMA,
            compression="zstd",
            compression_level=LEVEL,
            use_dictionary=["exchange", "routing_key", "partition"],
            write_statistics=["offset", "timestamp"],
            write_page_checksum=True,
        )
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = self._waiting_rows = 0
        self._rows = self._bytes = 0
        self._runs: list[tuple[int, int]] = []
        self._times: list[int] = []

    @property
    def size(self) -> int:
        """Return the bytes written; rows that wait for a full row group do not count."""
        return self._sink.tell()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows. Raises OSError."""
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= GROUP_ROWS or self._waiting_bytes >= GROUP_BYTES:
            self._write_group()

    def finish(self, end: int, step: Step) -> ArchivedFile:
        """Finish the file, which holds everything before `end`. Returns when it is on the disk under its name."""
        if self._waiting:
            self._write_group()
        self._writer.close()
        step("file written")
        self._sink.flush()
        os.fsync(self._sink.fileno())
        size = self._sink.tell()
        self._sink.close()
        step("file synced")
        # Wide enough for any offset, so that names sort as offsets do.
        name = f"{file_name(self._partition)}-{self._first:016}-{end - 1:016}.parquet"
        replace_file(self._unfinished, self._day / name)
        step("file named")
        path = f"{self._day.name}/{name}"
        times = (min(self._times), max(self._times))
        runs = () if self._runs == [(self._first, end)] else tuple(self._runs)
        return ArchivedFile(path, self._first, end, self._rows, size, self._bytes, *times, runs)

    def abandon(self) -> None:
        """Abandon the file; the next run removes its remains."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._sink.close()

    def _write_group(self) -> None:
        rows = pa.Table.from_batches(self._waiting, SCHEMA)
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._rows += rows.num_rows
        self._note_runs(rows["offset"])
        self._bytes += pc.sum(pc.binary_length(rows["body"])).as_py()
        times = pc.min_max(rows["timestamp"].cast(pa.int64())).as_py()
        self._times += [times["min"] // 1000, times["max"] // 1000]
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def _note_runs(self, offsets: pa.ChunkedArray) -> None:
        """Extend the ranges of offsets that have rows."""
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        begins = [first]
        if last - first + 1 > len(offsets):
            is_after_gap = pc.greater(pc.subtract(offsets[1:], offsets[:-1]), 1)
            begins += offsets[1:].filter(is_after_gap).to_pylist()
            ends = [*offsets[:-1].filter(is_after_gap).to_pylist(), last]
        else:
            ends = [last]
        for begin, end in zip(begins, ends, strict=True):
            append_run(self._runs, begin, end + 1)
