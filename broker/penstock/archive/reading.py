"""Reads an archive's files one row group at a time: rows of a range as Arrow messages, and offsets by time.

Files are untrusted input: the size in the manifest, checksums and column types are checked. No file stays open between
two calls.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.archive.columns import SCHEMA
from penstock.archive.errors import ArchiveError
from penstock.archive.manifest import ArchivedFile

__all__ = ["offset_since", "read_piece"]

# The size of a message to the client; a row group is cut into such pieces.
MESSAGE_BYTES = 2 * 2**20


def read_piece(
    folder: Path, file: ArchivedFile, start: int, end: int, columns: Sequence[str] | None
) -> tuple[int, list[bytes]]:
    """Return the rows of the first row group with any from `start` up to `end`, encapsulated, and the next offset.

    Raises ArchiveError and OSError.
    """
    wanted = SCHEMA.names if columns is None else list(columns)
    with opened(folder, file) as parquet:
        for number in range(parquet.num_row_groups):
            if bounds(parquet, number, "offset")[1] < start:
                continue
            is_last = number + 1 == parquet.num_row_groups
            group = read_group(parquet, number, list(dict.fromkeys(["offset", *wanted])))
            behind = file.next if is_last else group["offset"][-1].as_py() + 1
            rows = between(group, start, end).select(wanted)
            return min(behind, end), [batch.serialize().to_pybytes() for batch in cut(rows)]
    return min(file.next, end), []


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


def cut(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    count = max(1, rows.num_rows * MESSAGE_BYTES // max(rows.nbytes, 1))
    return iter(rows.combine_chunks().to_batches(max_chunksize=count))
