"""Reads an archive's files one row group at a time: rows of a range as Arrow messages, and offsets by time.

Files are untrusted input: the size in the manifest, checksums and column types are checked. No file stays open between
two calls.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.archive.columns import SCHEMA
from penstock.archive.errors import ArchiveError
from penstock.archive.filtering import EVERY_ROW, RowFilter, kept
from penstock.archive.manifest import ArchivedFile

__all__ = ["Message", "Wanted", "offset_since", "passed_over", "read_piece"]

# The size of a message to the client; a row group is cut into such pieces.
MESSAGE_BYTES = 2 * 2**20


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rows of a reader: offsets from `start` up to `end`, all columns or some, filtered or not."""

    start: int
    end: int
    columns: Sequence[str] | None = None
    filter: RowFilter = EVERY_ROW

    @property
    def names(self) -> list[str]:
        """Return the columns of the rows."""
        return SCHEMA.names if self.columns is None else list(self.columns)


class Message(NamedTuple):
    """A batch of rows, encapsulated.

    `next` is the offset behind it, `seen` how many rows there were behind the message before it, unfiltered.
    """

    next: int
    seen: int
    content: bytes


def read_piece(folder: Path, file: ArchivedFile, wanted: Wanted) -> list[Message]:
    """Return the rows of the first row group with any from `start` up to `end`, at least one message.

    Raises ArchiveError and OSError.
    """
    names = wanted.names
    start, end = wanted.start, wanted.end
    with opened(folder, file) as parquet:
        for number in range(parquet.num_row_groups):
            if bounds(parquet, number, "offset")[1] < start:
                continue
            is_last = number + 1 == parquet.num_row_groups
            group = read_group(parquet, number, list(dict.fromkeys(["offset", *wanted.filter.columns, *names])))
            behind = file.next if is_last else group["offset"][-1].as_py() + 1
            rows = between(group, start, end)
            return list(messages_of(rows, kept(rows, wanted.filter), names, min(behind, end)))
    return [passed_over(file, wanted)]


def passed_over(file: ArchivedFile, wanted: Wanted) -> Message:
    """Return a message without rows that goes on behind the file: none of its rows was seen."""
    return Message(min(file.next, wanted.end), 0, encapsulated(SCHEMA.empty_table().select(wanted.names)))


def offset_since(folder: Path, file: ArchivedFile, timestamp_ms: int) -> int | None:
    """Return the first offset in the file stored at this time or later. Raises ArchiveError and OSError."""
    time = pa.scalar(timestamp_ms * 1000, pa.int64()).cast(SCHEMA.field("timestamp").type)
    with opened(folder, file) as parquet:
        for number in range(parquet.num_row_groups):
            if bounds(parquet, number, "timestamp")[1] < time.as_py():
                continue
            rows = read_group(parquet, number, ["offset", "timestamp"])
            at: int = pc.index(pc.greater_equal(rows["timestamp"], time), True).as_py()
            if at >= 0:
                found: int = rows["offset"][at].as_py()
                return found
    return None


@contextmanager
def opened(folder: Path, file: ArchivedFile) -> Iterator[pq.ParquetFile]:
    """Open a file; errors raised in the block name it."""
    path = folder / file.path
    try:
        with path.open("rb") as source:
            size = source.seek(0, 2)
            if size != file.size:
                raise ArchiveError(f"{path} has {size} bytes and the manifest says {file.size}; restore a copy of it")
            with pq.ParquetFile(source, page_checksum_verification=True) as parquet:
                check_columns(parquet, path)
                yield parquet
    except pa.ArrowException as error:
        raise ArchiveError(f"{path} cannot be read: {error}; restore a copy of it") from error
    except OSError as error:
        # pyarrow raises it without a number for what is corrupt.
        raise ArchiveError(f"{path} cannot be read: {error.strerror or error}; restore a copy of it") from error


def check_columns(parquet: pq.ParquetFile, path: Path) -> None:
    found = parquet.schema_arrow
    if found.names != SCHEMA.names or any(found.field(each.name).type != each.type for each in SCHEMA):
        raise ArchiveError(f"{path} does not have the columns of an archive file; restore a copy of the right file")


def bounds(parquet: pq.ParquetFile, number: int, column: str) -> tuple[Any, Any]:
    found = parquet.metadata.row_group(number).column(SCHEMA.get_field_index(column)).statistics
    if found is None or not found.has_min_max:
        raise pa.ArrowInvalid(f"a row group has no bounds for '{column}'")
    return found.min, found.max


def read_group(parquet: pq.ParquetFile, number: int, columns: list[str]) -> pa.Table:
    # One thread only: the broker has other work.
    return parquet.read_row_group(number, columns=columns, use_threads=False)


def between(rows: pa.Table, start: int, end: int) -> pa.Table:
    """Return the rows in range: one slice, because offsets ascend."""
    offsets = rows["offset"]
    low = pc.sum(pc.less(offsets, start)).as_py() or 0
    high = pc.sum(pc.less(offsets, end)).as_py() or 0
    return rows.slice(low, max(0, high - low))


def messages_of(rows: pa.Table, found: pa.Table, names: list[str], behind: int) -> Iterator[Message]:
    """Yield those of the rows that were found, in messages of MESSAGE_BYTES; the last one ends at `behind`."""
    columns = found.select(names)
    count = max(1, columns.num_rows * MESSAGE_BYTES // max(columns.nbytes, 1))
    seen_before = 0
    for start in range(0, max(columns.num_rows, 1), count):
        is_last = start + count >= columns.num_rows
        end = behind if is_last else found["offset"][start + count - 1].as_py() + 1
        seen = pc.sum(pc.less(rows["offset"], end)).as_py() or 0
        yield Message(end, seen - seen_before, encapsulated(columns.slice(start, count)))
        seen_before = seen


def encapsulated(rows: pa.Table) -> bytes:
    batches = rows.combine_chunks().to_batches()
    whole = batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)
    content: bytes = whole.serialize().to_pybytes()
    return content
