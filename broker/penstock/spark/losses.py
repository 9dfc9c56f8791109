"""Checks in a task that a range is read whole: retention goes on after the driver has planned it.

The broker skips removed messages silently, and corrupt ones too. So the messages that it looked at are counted,
filtered ones included, and compared with the number when the range was planned.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from penstock.spark.described import Partition
from penstock.spark.errors import DataLossError, NotFoundError
from penstock.spark.pieces import Piece
from penstock.spark.ranges import OffsetRange, check_whole, messages

__all__ = ["Streams", "checked", "remaining"]

_log = logging.getLogger("penstock")


class Streams(Protocol):
    """The part of `Wire` that says what a partition has."""

    def describe(self, streams: tuple[str, ...]) -> Mapping[str, Partition]: ...


def checked(pieces: Iterator[Piece], wanted: OffsetRange, wire: Streams) -> Iterator[Piece]:
    """Yield the pieces of a range; raise DataLossError where messages are missing, or are another stream's.

    Messages that retention removes behind the read are no loss, and neither are numbers that a start skipped.
    """
    seen = 0
    for piece in pieces:
        seen += piece.seen
        yield piece
    there = wire.describe((wanted.partition,)).get(wanted.partition)
    # Whether it is the same stream, whatever retention removed.
    partition = check_whole(replace(wanted, rows=0), there)
    planned = wanted.rows
    if planned < 0:
        # Not counted exactly when it was planned. Where runs may be joined the number is too high now, and a loss that
        # is told from it may be none.
        planned = partition.rows_between(wanted.start, wanted.end) if partition.is_exact else 0
    if seen < planned:
        check_whole(wanted, there)
        raise DataLossError(
            f"the broker dropped {messages(planned - seen)} of partition '{wanted.partition}' between offsets "
            f"{wanted.start} and {wanted.end} as corrupt: see its log; set failOnDataLoss=false to continue without "
            "them"
        )


def remaining(pieces: Iterator[Piece], wanted: OffsetRange, wire: Streams) -> Iterator[Piece]:
    """Yield the pieces that there are, and log how many rows are missing: the stream may even be deleted by now.

    Rows of a stream that was declared again belong to a later batch, which begins with its first row. Raises
    DataLossError when it is declared again during the read; a repeated task leaves its rows out.
    """
    seen = 0
    try:
        if is_another(wanted, wire):
            _log.warning("partition '%s' is not read: it was declared again after planning", wanted.partition)
            return
        for piece in pieces:
            seen += piece.seen
            yield piece
        if is_another(wanted, wire):
            raise DataLossError(
                f"partition '{wanted.partition}' was declared again while a task read it; repeat the task, which then "
                "leaves its rows to a later batch"
            )
        if seen < wanted.rows:
            missing, where = messages(wanted.rows - seen), (wanted.partition, wanted.start, wanted.end)
            _log.warning("%s of partition '%s' between offsets %d and %d are missing and passed over", missing, *where)
    except NotFoundError as error:
        _log.warning("partition '%s' is read no further: %s", wanted.partition, error)


def is_another(wanted: OffsetRange, wire: Streams) -> bool:
    """Return whether a partition is not the one that the range was planned for; raise NotFoundError without one."""
    there = wire.describe((wanted.partition,)).get(wanted.partition)
    return there is not None and there.id != wanted.id
