"""Arithmetic of offsets: how far a trigger reads, where its tasks begin, and which rows are lost.

Ranges of one partition never overlap and leave no row out, from the first micro-batch to the last. Limits count rows,
by the runs of offsets that have messages, so a gap of any width costs nothing. Pure: no wire, no clock, no Spark.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from penstock.spark.described import Partition, number_of
from penstock.spark.errors import DataLossError
from penstock.spark.positions import Position, Positions
from penstock.spark.shares import Limits, admitted, parts_of

__all__ = [
    "OffsetRange",
    "advanced",
    "begun",
    "check_streams",
    "check_whole",
    "lost_between",
    "messages",
    "missing_archive",
    "passed_over",
    "ranges_of",
    "spans_of",
    "unread",
]

# The places of so many partitions that are away are kept: streams of a pattern may come and go for ever.
AWAY_MAX = 1_000
REMEDY = "set failOnDataLoss=false to continue with the remaining messages, or start with a new checkpoint"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """A range that one task reads, from `start` up to `end` (exclusive), numbered among its siblings.

    `rows` is the number of rows in it when it was planned, -1 where unknown. `stream`, `partition_number` and `id` say
    whose range it is.
    """

    partition: str
    start: int
    end: int
    number: int = 0
    count: int = 1
    rows: int = -1
    stream: str = ""
    partition_number: int = 0
    id: str = ""


def begun(start: Positions, there: Mapping[str, Partition], fail_on_data_loss: bool) -> dict[str, int]:
    """Return where each partition goes on: where `start` says, else at its first row. Raises DataLossError.

    A partition that `start` does not name is new, or was not chosen before.
    """
    if fail_on_data_loss:
        check_identities(start, there)
    found = {}
    for name, partition in sorted(there.items()):
        at = start.get(name)
        if at is None or at.id != partition.id:
            if fail_on_data_loss and partition.archive_error is not None:
                raise DataLossError(missing_archive(partition))
            found[name] = partition.first
        elif at.next > partition.next:
            if fail_on_data_loss:
                raise DataLossError(
                    f"partition '{name}' ends at {partition.next} and was read up to {at.next}: it lost messages, for "
                    f"example because an old copy of the broker's data was restored; {REMEDY}"
                )
            found[name] = partition.next
        else:
            found[name] = at.next
    return found


def check_identities(start: Positions, there: Mapping[str, Partition]) -> None:
    """Raise DataLossError when the checkpoint is of partitions that the query does not read."""
    check_streams(start, lambda _, name: name in there)
    for name, at in start.items():
        if not at.is_away and at.id != there[name].id:
            raise DataLossError(anew(at.stream, name))


def check_streams(positions: Positions, is_chosen: Callable[[str, str], bool]) -> None:
    """Raise DataLossError when the query does not read a partition that the checkpoint has.

    One that was away already is a loss that the query was told to pass over.
    """
    for name, at in positions.items():
        if not at.is_away and not is_chosen(at.stream, name):
            raise DataLossError(
                f"the Spark checkpoint is of partition '{name}' of stream '{at.stream}', which is not there or not "
                "chosen by this query: name that stream, start with a new checkpoint, or set failOnDataLoss=false to "
                "continue with the chosen ones and begin with the first row of new ones"
            )


def anew(stream: str, partition: str) -> str:
    return (
        f"stream '{stream}' is not the one that was read: partition '{partition}' was deleted and declared again, or "
        "belongs to another broker; start with a new checkpoint, or set failOnDataLoss=false to begin with its first "
        "row"
    )


def missing_archive(partition: Partition) -> str:
    rows = messages(partition.rows_before(partition.first))
    return (
        f"the read begins in the archive of partition '{partition.name}', and up to {rows} before offset "
        f"{partition.first} are missing: {partition.archive_error}; or begin elsewhere (startingOffsets), or set "
        "failOnDataLoss=false to continue without them"
    )


def unread(partition: Partition, at: int, until: int | None = None) -> int:
    """Return the number of rows to read from an offset on, up to `until` where it is given."""
    return partition.rows_between(at, partition.next if until is None else min(until, partition.next))


def advanced(
    start: Positions,
    there: Mapping[str, Partition],
    until: Mapping[str, int] | None,
    limits: Limits,
    fail_on_data_loss: bool = True,
) -> Positions | None:
    """Return the end of the next batch with its cuts, or None when there is nothing to read. Raises DataLossError.

    With `until` only its partitions are read, and up to those offsets.
    """
    at = begun(start, there, fail_on_data_loss)
    ends = {name: each.next if until is None else until.get(name, at[name]) for name, each in there.items()}
    behind = {name: unread(there[name], offset, ends[name]) for name, offset in at.items()}
    spans = admitted(behind, there, limits)
    parts = parts_of(spans, there, limits)
    found: Positions = {}
    for name, offset in at.items():
        partition, rows = there[name], spans[name]
        end = end_of(partition, offset, rows, behind[name], ends[name])
        known = start.get(name)
        # Behind a place that was not counted exactly, a difference may be gaps between joined runs.
        if known is not None and known.id == partition.id and known.is_exact and fail_on_data_loss:
            check_lost(partition, offset, known.rows, end)
        if not rows:
            # Where a partition rests its offset stays as it is, though numbers may have been skipped behind it.
            end = offset
        found[name] = Position(
            partition.stream,
            partition.id,
            end,
            partition.rows_before(end),
            cuts_of(partition, offset, end, parts[name]) if rows else (),
            partition.is_exact,
        )
    return found | away(start, there) if any(spans.values()) else None


def away(start: Positions, there: Mapping[str, Partition]) -> Positions:
    """Return the places in partitions that are not there, the newest last: one that comes back goes on at its own."""
    missing = [(name, at) for name, at in start.items() if name not in there]
    missing.sort(key=lambda each: not each[1].is_away)
    return {name: replace(at, cuts=(), is_away=True) for name, at in missing[-AWAY_MAX:]}


def end_of(partition: Partition, at: int, rows: int, behind: int, until: int) -> int:
    """Return the offset behind so many rows: of the next row, or the end when there is none."""
    if rows == behind:
        return max(at, min(until, partition.next))
    return partition.runs.offset_of(partition.runs.below(at) + rows)


def cuts_of(partition: Partition, start: int, end: int, parts: int) -> tuple[tuple[int, int], ...]:
    """Return the start of each part of a range with about as many rows each, and the number of rows before it."""
    low, high = partition.runs.below(start), partition.runs.below(end)
    before = partition.rows_before(end) - (high - low)
    rows = [(high - low) * part // parts for part in range(parts)]
    return tuple((partition.runs.offset_of(low + row) if row else start, max(0, before + row)) for row in rows)


def check_lost(partition: Partition, start: int, rows_before: int, end: int) -> None:
    """Raise DataLossError when rows between an offset with so many rows before it and a later one are gone.

    There may be fewer rows before it now: a broker that lost power may lose messages that were read already. Then
    nothing is missing. Where the broker joined runs, at least so many rows are gone: they have too many.
    """
    lost = lost_between(partition, start, rows_before, end)
    where = f"{messages(lost)} of partition '{partition.name}' between offsets {start} and {end}"
    if lost > 0 and partition.archive_error is not None:
        raise DataLossError(f"{where} are missing: {partition.archive_error}; or {REMEDY}")
    if lost > 0:
        raise DataLossError(f"retention removed {where} before they were read; {REMEDY}")


def lost_between(partition: Partition, start: int, rows_before: int, end: int) -> int:
    return partition.rows_before(end) - rows_before - partition.rows_between(start, end)


def passed_over(start: Positions, end: Positions, there: Mapping[str, Partition]) -> dict[str, int]:
    """Return how many rows of each partition a batch passes over, as far as `check_lost` would tell."""
    lost: dict[str, int] = {}
    for name, partition in there.items():
        known, at = start.get(name), end.get(name)
        if at is None:
            continue
        if known is None or known.id != partition.id:
            lost[name] = 0 if partition.archive_error is None else partition.rows_before(partition.first)
        elif known.is_exact:
            lost[name] = lost_between(partition, known.next, known.rows, at.next)
    return {name: rows for name, rows in lost.items() if rows > 0}


def check_whole(wanted: OffsetRange, there: Partition | None) -> Partition:
    """Return the partition; raise DataLossError when a planned range has fewer rows by now, or it is another one."""
    if there is None or (wanted.id and there.id != wanted.id):
        raise DataLossError(anew(wanted.stream, wanted.partition))
    if there.next < wanted.end:
        raise DataLossError(
            f"partition '{wanted.partition}' ends at {there.next}, and this task reads up to {wanted.end}: it lost "
            f"messages with its disk, or an old copy of the broker's data was restored; {REMEDY}"
        )
    lost = wanted.rows - there.rows_between(wanted.start, wanted.end)
    if lost > 0:
        raise DataLossError(
            f"retention removed {lost} of {messages(wanted.rows)} of partition '{wanted.partition}' between offsets "
            f"{wanted.start} and {wanted.end} after the batch was planned; {REMEDY}"
        )
    return there


def messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"


def ranges_of(end: Positions) -> list[OffsetRange]:
    """Return the ranges of the batch that ends here, in the order of its tasks."""
    found: list[OffsetRange] = []
    for name, at in end.items():
        whose = (at.stream, number_of(at.stream, name), at.id)
        bounds = pairwise((*at.cuts, (at.next, at.rows)))
        found += [
            OffsetRange(name, low, high, number, len(at.cuts), after - before if at.is_exact else -1, *whose)
            for number, ((low, before), (high, after)) in enumerate(bounds)
        ]
    return found


def spans_of(spans: Iterable[tuple[Partition, int, int]], limits: Limits, fail_on_data_loss: bool) -> Positions:
    """Return the cuts of a batch read from one offset up to another in each partition. Raises DataLossError."""
    wanted: Sequence[tuple[Partition, int, int]] = [each for each in spans if each[1] < each[2]]
    rows = {partition.name: partition.rows_between(start, end) for partition, start, end in wanted}
    parts = parts_of(rows, {partition.name: partition for partition, _, _ in wanted}, limits)
    found: Positions = {}
    for partition, start, end in wanted:
        if fail_on_data_loss:
            check_lost(partition, start, partition.rows_before(start), end)
        if rows[partition.name]:
            cuts = cuts_of(partition, start, end, parts[partition.name])
            rows_before = partition.rows_before(end)
            where = (partition.stream, partition.id, end)
            found[partition.name] = Position(*where, rows_before, cuts, partition.is_exact)
    return found
