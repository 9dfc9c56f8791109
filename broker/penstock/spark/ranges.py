"""Arithmetic of offsets: which ranges a batch reads, how they are split over tasks, how far a trigger goes.

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

# A place in each partition, by the partition's name: the first offset that is not yet read.
Offsets: TypeAlias = dict[str, int]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What one task reads: `start` is read, `end` is not. The number and count of its siblings name it."""

    partition: str
    start: int
    end: int
    number: int = 0
    count: int = 1

    @property
    def size(self) -> int:
        return self.end - self.start


def resolved(place: Place, first: Offsets, end: Offsets, at_time: Mapping[str, int]) -> Offsets:
    """Offsets for a place; `at_time` has those of its times already."""
    if place.kind == "earliest":
        return dict(first)
    if place.kind == "latest":
        return dict(end)
    if place.kind == "times":
        return {partition: at_time[partition] for partition in end}
    named = {LATEST_OFFSET: end, EARLIEST_OFFSET: first}
    for partition in place.by_partition or {}:
        if partition not in end:
            raise OptionError(f"there is no partition '{partition}'; there are: {', '.join(sorted(end))}")
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
    """What lies between, for each partition that has something; raises DataLossError.

    A partition that `start` does not know begins with its first message. `gone` is what one lacks in the middle.
    """
    ranges = []
    for partition, stop in sorted(end.items()):
        there = first.get(partition, 0)
        begin = start.get(partition, there)
        low, high = (gone or {}).get(partition, (0, 0))
        for lost in ((begin, min(there, stop)), (max(begin, low), min(high, stop))):
            if lost[0] < lost[1] and fail_on_data_loss:
                raise DataLossError(
                    f"offsets {lost[0]} to {lost[1] - 1} of '{partition}' are wanted and retention took them; "
                    "set failOnDataLoss=false to go on with what is there, or begin a new checkpoint"
                )
        begin = max(begin, there)
        if begin < stop:
            ranges.append(OffsetRange(partition, begin, stop))
    return ranges


def split(ranges: Sequence[OffsetRange], splits_min: int) -> list[OffsetRange]:
    """At least `splits_min` ranges where there are so many offsets, the larger ones split into more."""
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
    """How far a trigger goes when it may read so many rows: every partition advances by its share, at least by one.

    One row for each partition that has any is the least: with less, a partition could wait for ever.
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
    """Rows that have about so many bytes, by the stream's mean; one at least."""
    if stream_bytes <= 0 or stream_rows <= 0:
        return bytes_max
    return max(1, bytes_max * stream_rows // stream_bytes)
