"""Checks in a task that a range is read whole: retention goes on after the driver has planned it.

The broker skips removed messages silently, and corrupt ones too. So rows are counted while they are read, and what the
stream has left is compared afterwards: retention removes only from the front, so rows that are there at the end were
there all the time.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

import pyarrow as pa

from penstock.spark.described import Partition
from penstock.spark.errors import DataLossError
from penstock.spark.ranges import OffsetRange, check_whole, messages

__all__ = ["Streams", "checked"]


class Streams(Protocol):
    """The part of `Wire` that says what a partition has."""

    def describe(self, streams: tuple[str, ...]) -> Mapping[str, Partition]: ...


def checked(
    batches: Iterator[pa.RecordBatch], wanted: OffsetRange, wire: Streams, *, is_filtered: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a range; raise DataLossError where rows are missing, or are another stream's.

    Batches have their offsets. Where the broker filters rows, corrupt ones are not noticed.
    """
    at = wanted.start
    for batch in batches:
        end = batch["offset"][-1].as_py() + 1
        if not is_filtered and end - at != batch.num_rows:
            # Numbers that a start of the broker skipped are no loss.
            check_read(wanted, described(wanted, wire), at, end, batch.num_rows)
        at = end
        yield batch
    check_read(wanted, described(wanted, wire), wanted.end if is_filtered else at, wanted.end, 0)


def described(wanted: OffsetRange, wire: Streams) -> Partition:
    """Return the partition of a range as it is now; raise DataLossError when the range is not whole any more."""
    there = wire.describe((wanted.partition,)).get(wanted.partition)
    return check_whole(wanted, there)


def check_read(wanted: OffsetRange, there: Partition, start: int, end: int, rows: int) -> None:
    """Raise DataLossError when fewer rows were read from `start` up to `end` than are there."""
    corrupt = there.rows_between(start, end) - rows
    if corrupt > 0:
        raise DataLossError(
            f"the broker dropped {messages(corrupt)} of partition '{wanted.partition}' between offsets {start} and "
            f"{end} as corrupt: see its log; set failOnDataLoss=false to continue without them"
        )
