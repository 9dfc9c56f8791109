"""Arithmetic of offsets: the ranges of a batch, how they are split over tasks, how far a trigger reads.

Ranges of one partition never overlap and leave no gap, from the first micro-batch to the last. Pure: no wire, no clock,
no Spark.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from penstock.spark.errors import DataLossError, OptionError
from penstock.spark.options import EARLIEST_OFFSET, LATEST_OFFSET, Place

__all__ = ["OffsetRange", "Offsets", "admitted", "bytes_to_rows", "ranges_between", "resolved", "split"]

# The first unread offset of each partition, by the partition's name.
Offsets: TypeAlias = dict[str, int]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """A range that one task reads, from `start` up to `end` (exclusive), numbered among its siblings."""

    partition: str
    start: int
    end: int
    number: int = 0
    count: int = 1

    @property
    def size(self) -> int:
        return self.end - self.start


def resolved(place: Place, first: Offsets, end: Offsets, at_time: Mapping[str, int]) -> Offsets:
    """Return the offsets of a place; `at_time` already has those of its times."""
    if place.kind == "earliest":
        return dict(first)
    if place.kind == "latest":
        return dict(end)
    if place.kind == "times":
        return {partition: at_time[partition] for partition in end}
    named = {LATEST_OFFSET: end, EARLIEST_OFFSET: first}
    for partition in place.by_partition or {}:
        if partition not in end:
            raise OptionError(f"there is no partition '{partition}'; valid are: {', '.join(sorted(end))}")
    return {
        partition: named[place.of(partition)][partition] if place.of(partition) in named else place.of(partition)
        for partition in end
    }


def ranges_between(
    start: Offsets,
    end: Offsets,
    first: Offsets,
    fail_on_data_loss: bool,
    gone: Mapping[str, tuple[int, int]] | None = None,
) -> list[OffsetRange]:
    """Return the ranges of all partitions that have something to read; raise DataLossError.

    A partition that `start` does not name starts with its first message. `gone` has the ranges that are missing in the
    middle.
    """
    ranges = []
    for partition, stop in sorted(end.items()):
        there = first.get(partition, 0)
        begin = start.get(partition, there)
        low, high = (gone or {}).get(partition, (0, 0))
        for lost in ((begin, min(there, stop)), (max(begin, low), min(high, stop))):
            if lost[0] < lost[1] and fail_on_data_loss:
                raise DataLossError(
                    f"offsets {lost[0]} to {lost[1] - 1} of '{partition}' were removed by retention; "
                    "set failOnDataLoss=false to continue with the remaining messages, or start with a new checkpoint"
                )
        begin = max(begin, there)
        if begin < stop:
            ranges.append(OffsetRange(partition, begin, stop))
    return ranges


def split(ranges: Sequence[OffsetRange], splits_min: int) -> list[OffsetRange]:
    """Split into at least `splits_min` ranges where there are enough offsets, large ranges into more parts."""
    total = sum(each.size for each in ranges)
    found = []
    for each in ranges:
        parts = min(each.size, max(1, -(-splits_min * each.size // max(total, 1))))
        cuts = [each.start + each.size * part // parts for part in range(parts + 1)]
        found += [
            OffsetRange(each.partition, low, high, number, parts) for number, (low, high) in enumerate(pairwise(cuts))
        ]
    return found


def admitted(start: Offsets, end: Offsets, rows_max: int) -> Offsets:
    """Return how far a trigger reads with this row limit: every partition advances by its share, at least by one.

    The minimum is one row for each partition that has any: with less, a partition could wait for ever.
    """
    behind = {partition: max(0, stop - start.get(partition, stop)) for partition, stop in end.items()}
    total = sum(behind.values())
    if total <= rows_max:
        return {partition: max(stop, start.get(partition, stop)) for partition, stop in end.items()}
    return {
        partition: start.get(partition, stop)
        + (max(1, behind[partition] * rows_max // total) if behind[partition] else 0)
        for partition, stop in end.items()
    }


def bytes_to_rows(bytes_max: int, stream_bytes: int, stream_rows: int) -> int:
    """Return the number of rows that have about so many bytes by the stream's mean, at least one."""
    if stream_bytes <= 0 or stream_rows <= 0:
        return bytes_max
    return max(1, bytes_max * stream_rows // stream_bytes)
