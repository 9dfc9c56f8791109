"""Checks in a task that a range is read whole: retention goes on after the driver has planned it.

The broker skips removed messages silently, and corrupt ones too. So offsets that are missing are looked up: only those
that retention removed, or that a stream declared anew never had, are a loss.
"""

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from penstock.spark.errors import DataLossError
from penstock.spark.ranges import OffsetRange, ranges_between
from penstock.spark.wire import Described

__all__ = ["Streams", "checked"]


class Streams(Protocol):
    """The part of `Wire` that says where a stream begins and ends."""

    def describe(self, stream: str) -> Described: ...


def checked(
    batches: Iterator[pa.RecordBatch], wanted: OffsetRange, stream: str, wire: Streams
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a range, which have their offsets; raise DataLossError where rows are missing."""
    at = wanted.start
    for batch in batches:
        gaps = list(gaps_before(batch["offset"], at))
        if gaps:
            there = wire.describe(stream)
            for start, end in gaps:
                check_missing(wanted.partition, start, end, there)
        at = batch["offset"][-1].as_py() + 1
        yield batch
    if at < wanted.end:
        check_missing(wanted.partition, at, wanted.end, wire.describe(stream))


def gaps_before(offsets: pa.Int64Array, at: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges from `at` on that are missing before offsets, which ascend."""
    if offsets[-1].as_py() + 1 - at == len(offsets):
        return
    for offset in offsets.to_pylist():
        if offset > at:
            yield at, offset
        at = offset + 1


def check_missing(partition: str, start: int, end: int, there: Described) -> None:
    """Raise DataLossError when the stream has lost offsets from `start` to before `end`, or does not reach `end`."""
    ranges_between({partition: start}, {partition: end}, there.first, True, there.gone)
    reached = there.end.get(partition, 0)
    if reached < end:
        raise DataLossError(
            f"partition '{partition}' ends at {reached}, and this task reads up to {end}: it was deleted and declared "
            "again, or lost messages with its disk; start with a new checkpoint, or set failOnDataLoss=false to "
            "continue with the remaining messages"
        )
