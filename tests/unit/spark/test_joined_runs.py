"""Runs that a broker joined: rows are then not counted exactly, which never looks like a loss."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark import described
from penstock.spark.described import Partition
from penstock.spark.errors import DataLossError
from penstock.spark.losses import checked
from penstock.spark.pieces import Piece
from penstock.spark.positions import Position, Positions, offset_json, parse_offset
from penstock.spark.ranges import OffsetRange, advanced, check_whole, ranges_of
from penstock.spark.shares import Limits
from penstock.spark.wire import Wire
from support.fake_flight import FakeFlight
from support.partitions import Messages

GAPS = st.sets(st.integers(0, 59), max_size=25)
# Numbers that were skipped, and the messages behind them.
PIECES = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), min_size=1, max_size=12)
RUNS_MAX = st.none() | st.integers(1, 6)


def stored(end: Positions) -> Positions:
    """Return the offset as the Spark checkpoint returns it."""
    return parse_offset(json.loads(json.dumps(offset_json(end))))


def seen_in(wanted: OffsetRange, messages: Messages) -> int:
    return sum(wanted.start <= offset < wanted.end for offset in messages.offsets)


def told(at: Positions, there: Partition) -> int:
    """Return how many messages are told to be lost."""
    try:
        advanced(at, {"events": there}, None, Limits())
    except DataLossError as error:
        return int(str(error).split()[2])
    return 0


@given(PIECES, RUNS_MAX, RUNS_MAX, RUNS_MAX, st.integers(1, 20), st.integers(0, 60))
def test_numbers_that_were_skipped_are_never_a_loss_whichever_runs_are_joined(
    pieces: list[tuple[int, int]], first: int | None, then: int | None, last: int | None, limit: int, removed: int
) -> None:
    messages = Messages(removed=100, next=101, first=101)
    for skipped, count in pieces:
        messages = messages.more(count, skipped)
    start = messages.described(first)
    at = {"events": Position("events", "a", 101, start.rows_before(101), (), start.is_exact)}

    while (end := advanced(at, {"events": messages.described(then)}, None, Limits(rows_max=limit))) is not None:
        at = stored(end)
        for each in ranges_of(at):
            check_whole(each, messages.described(last))
            assert seen_in(each, messages) >= each.rows
    # Retention removes what was read: the broker joins other runs now.
    later = messages.without(min(removed, len(messages.offsets))).more(3)
    assert advanced(at, {"events": later.described(last)}, None, Limits()) is not None


@given(GAPS, st.integers(1, 6), st.integers(1, 20))
def test_a_loss_that_is_told_behind_an_exact_place_is_one(gone: set[int], runs_max: int, removed: int) -> None:
    """Joined runs count too many messages, so fewer are missing than there are."""
    before = Messages().more(60)
    at = {"events": Position("events", "a", 1, 0)}
    after = before.without_some(*gone).without(min(removed, 60 - len(gone)))

    assert told(at, after.described(runs_max)) <= after.removed


def test_a_place_that_was_not_counted_exactly_says_so_in_the_checkpoint() -> None:
    messages = Messages().more(60).without_some(10, 20, 30)
    end = advanced({}, {"events": messages.described(2)}, None, Limits(splits_min=3)) or {}

    assert offset_json(end)["partitions"]["events"]["exact"] is False
    assert stored(end) == end
    assert [each.rows for each in ranges_of(end)] == [-1, -1, -1]
    assert (
        "exact"
        not in offset_json(advanced({}, {"events": messages.described()}, None, Limits()) or {})["partitions"]["events"]
    )


def test_a_task_tells_no_loss_where_the_driver_or_the_broker_counted_joined_runs(
    server: FakeFlight, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver asks for both partitions at once, and a task for one, whose runs are then listed all."""
    monkeypatch.setattr(described, "RUNS_MAX", 5)
    monkeypatch.setattr(described, "RUNS_OF_ALL_MAX", 6)
    server.declare("events", partitions=2)
    server.publish("events-0", *([b"x"] * 20))
    server.lose("events-0", 4, 8, 12)

    def read(wanted: OffsetRange, wire: Wire) -> int:
        pieces: Iterator[Piece] = wire.read_pieces(wanted, ["offset"], {})
        return sum(piece.rows.num_rows for piece in checked(pieces, wanted, wire))

    with Wire(server.uri) as wire:
        there = wire.describe(("events",))
        assert there["events-0"].runs.total == 18
        (wanted,) = ranges_of(advanced({}, there, None, Limits()) or {})
        assert read(wanted, wire) == 17
        server.lose("events-0", 2, 6)
        assert read(OffsetRange("events-0", 1, 21, id="id-1"), wire) == 15
