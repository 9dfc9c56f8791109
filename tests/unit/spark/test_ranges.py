"""The arithmetic of offsets, for any runs: no row is left out or read twice, every limit holds, losses are told."""

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark import ranges
from penstock.spark.described import Partition
from penstock.spark.errors import DataLossError
from penstock.spark.positions import Position, Positions, offset_json, parse_offset
from penstock.spark.ranges import OffsetRange, advanced, check_streams, check_whole, ranges_of, spans_of
from penstock.spark.shares import SPLITS_MAX, Limits
from support.partitions import RAISE, Messages, some_messages

NAMES = ("events-0", "events-1", "events-2")
SOME = st.tuples(*(some_messages(name) for name in NAMES))
LIMITS = st.builds(
    Limits,
    rows_max=st.none() | st.integers(1, 60),
    bytes_max=st.none() | st.integers(1, 6_000),
    splits_min=st.integers(1, 20),
    split_rows_max=st.none() | st.integers(1, 30),
)


def described(some: Iterable[Messages]) -> dict[str, Partition]:
    return {each.name: each.described() for each in some}


def beginning(there: dict[str, Partition]) -> Positions:
    return {name: Position("events", each.id, each.first, each.rows_before(each.first)) for name, each in there.items()}


def stored(end: Positions) -> Positions:
    """Return the offset as the Spark checkpoint returns it."""
    return parse_offset(json.loads(json.dumps(offset_json(end))))


def offsets_in(each: OffsetRange, some: Iterable[Messages]) -> list[int]:
    (messages,) = (messages for messages in some if messages.name == each.partition)
    return [offset for offset in messages.offsets if each.start <= offset < each.end]


def followed(at: Positions, some: Iterable[Messages], limits: Limits) -> tuple[list[list[OffsetRange]], Positions]:
    there, batches = described(some), []
    while (end := advanced(at, there, None, limits)) is not None:
        batches.append(ranges_of(stored(end)))
        at = end
        assert len(batches) <= 1_000
    return batches, at


@given(SOME, LIMITS)
def test_batches_have_every_row_once_in_order_and_keep_the_limits(some: tuple[Messages, ...], limits: Limits) -> None:
    there = described(some)

    batches, _ = followed(beginning(there), some, limits)

    for messages in some:
        parts = [each for batch in batches for each in batch if each.partition == messages.name]
        assert all(before.end == after.start for before, after in pairwise(parts))
        assert [offset for each in parts for offset in offsets_in(each, some)] == list(messages.offsets)
    for batch in batches:
        waiting = len({each.partition for each in batch})
        rows = sum(each.rows for each in batch)
        assert all(each.rows == len(offsets_in(each, some)) > 0 for each in batch)
        assert rows <= max(limits.rows_max or rows, waiting)
        assert 100 * rows <= max(limits.bytes_max or 100 * rows, 100 * waiting)
        assert all(each.rows <= (limits.split_rows_max or each.rows) for each in batch)
        assert len(batch) >= min(limits.splits_min, rows)
        for name in NAMES:
            own = [each for each in batch if each.partition == name]
            assert [(each.number, each.count) for each in own] == [(number, len(own)) for number in range(len(own))]


@given(st.integers(1, 500), st.integers(1, 500), st.integers(1, 300))
def test_a_gap_costs_no_batch(before: int, behind: int, rows_max: int) -> None:
    messages = Messages().more(before).more(behind, RAISE)

    batches, at = followed(beginning(described([messages])), [messages], Limits(rows_max))

    assert len(batches) == -(-(before + behind) // rows_max)
    assert at["events"].next == messages.next


def test_rows_behind_a_gap_are_spread_over_the_tasks() -> None:
    """With `minPartitions=4` one task got all of them."""
    messages = Messages().more(100).more(100, RAISE)
    at = {"events": Position("events", "a", 101, 100)}

    end = advanced(at, described([messages]), None, Limits(splits_min=4))

    assert [each.rows for each in ranges_of(end or {})] == [25, 25, 25, 25]


@given(some_messages(), st.integers(0, 50), st.integers(0, 100))
def test_rows_that_retention_removed_unread_are_told_and_no_others(messages: Messages, read: int, removed: int) -> None:
    read = min(read, len(messages.offsets))
    there = messages.described()
    at = {"events": Position("events", "a", messages.offsets[read - 1] + 1 if read else there.first, 0)}
    at["events"] = replace(at["events"], rows=messages.removed + read)
    removed = min(removed, len(messages.offsets))
    left = messages.without(removed)

    if removed > read:
        with pytest.raises(
            DataLossError, match=rf"^retention removed {removed - read} messages? of partition 'events'"
        ):
            advanced(at, described([left]), None, Limits())
        end = advanced(at, described([left]), None, Limits(), fail_on_data_loss=False)
    else:
        end = advanced(at, described([left]), None, Limits())

    found = [offset for each in ranges_of(end or {}) for offset in offsets_in(each, [left])]
    assert found == list(messages.offsets[max(read, removed) :])


@given(st.integers(1, 50), st.integers(0, 50), st.integers(0, 50), st.integers(1, 20))
def test_a_broker_that_lost_rows_which_were_read_is_no_loss_and_nothing_is_read_twice(
    count: int, lost: int, new: int, rows_max: int
) -> None:
    """Rows at durability `os` whose broker lost power: the query had read them, and new ones get higher offsets."""
    before = Messages().more(count)
    _, at = followed(beginning(described([before])), [before], Limits())
    after = before.without_tail(min(lost, count)).more(new)

    batches, at = followed(at, [after], Limits(rows_max))

    found = [offset for batch in batches for each in batch for offset in offsets_in(each, [after])]
    assert found == list(after.offsets[len(after.offsets) - new :])
    # The count is right again: what retention takes from here on is told exactly.
    if new:
        later = after.more(9).without(len(after.offsets) + 5)
        with pytest.raises(DataLossError, match=r"^retention removed 5 message"):
            advanced(at, described([later]), None, Limits())


def test_a_partition_that_was_read_to_its_end_and_trimmed_behind_a_raise_lost_nothing() -> None:
    messages = Messages().more(80)
    _, at = followed(beginning(described([messages])), [messages], Limits())
    trimmed = messages.more(160, RAISE).without(80)

    batches, _ = followed(at, [trimmed], Limits())

    assert [each.rows for batch in batches for each in batch] == [160]
    assert advanced(at, described([messages.more(0, RAISE).without(80)]), None, Limits()) is None


def test_rows_that_went_before_they_were_archived_are_told_by_their_number() -> None:
    there = replace(Messages().more(7).more(8, 4).described(), rows=19)
    assert (there.first, there.next) == (1, 20)

    def found(start: int, end: int, fails: bool) -> list[tuple[int, int]]:
        ranges = ranges_of(spans_of([(there, start, end)], Limits(), fails))
        return [(each.start, each.end) for each in ranges]

    with pytest.raises(DataLossError, match=r"^retention removed 4 message"):
        found(1, 20, True)
    with pytest.raises(DataLossError, match=r"^retention removed 1 message"):
        found(9, 10, True)
    assert found(1, 20, False) == [(1, 20)]
    assert found(1, 8, True) == [(1, 8)]
    assert found(12, 20, True) == [(12, 20)]
    with pytest.raises(DataLossError, match=r"^retention removed 4 message"):
        advanced(beginning({"events": there}), {"events": there}, None, Limits())


def test_a_batch_from_an_offset_below_the_first_tells_what_is_missing() -> None:
    there = Messages().more(20).without(11).described()

    with pytest.raises(
        DataLossError, match=r"^retention removed 7 messages of partition 'events' between offsets 5 and 21"
    ):
        spans_of([(there, 5, 21)], Limits(), True)
    assert [each.rows for each in ranges_of(spans_of([(there, 5, 21)], Limits(), False))] == [9]


def test_a_partition_that_is_not_in_the_offset_begins_with_its_first_row() -> None:
    some = [Messages(name="events-0").more(5), Messages(name="events-1").more(9).without(3)]
    at = {"events-0": Position("events", "a", 6, 5)}

    end = advanced(at, described(some), None, Limits())

    assert [(each.partition, each.start, each.rows) for each in ranges_of(end or {})] == [("events-1", 4, 6)]


def test_an_offset_of_other_streams_is_refused_and_with_leave_begins_with_their_first_rows() -> None:
    there = described([Messages(name="payments").more(30)])
    at = {"orders": Position("orders", "a", 21, 20)}

    with pytest.raises(DataLossError, match="partition 'orders' of stream 'orders', which is not there or not chosen"):
        advanced(at, there, None, Limits())
    end = advanced(at, there, None, Limits(), fail_on_data_loss=False)
    assert [(each.partition, each.rows) for each in ranges_of(end or {})] == [("payments", 30)]


def test_the_place_in_a_partition_that_is_away_is_kept_without_the_cuts_of_its_batch() -> None:
    """It was read again from its first row."""
    some = [Messages(name="events-0").more(5), Messages(name="events-1").more(9)]
    there = described(some)
    at = stored(advanced({}, there, None, Limits()) or {})
    more = {name: each.more(2) for name, each in zip(there, some, strict=True)}
    with pytest.raises(DataLossError, match="partition 'events-1' of stream 'events', which is not there"):
        advanced(at, described([more["events-0"]]), None, Limits())

    away = stored(advanced(at, described([more["events-0"]]), None, Limits(), fail_on_data_loss=False) or {})
    assert [(each.partition, each.start, each.rows) for each in ranges_of(away)] == [("events-0", 6, 2)]
    back = advanced(away, described(more.values()), None, Limits(), fail_on_data_loss=False)
    assert [(each.partition, each.start, each.rows) for each in ranges_of(back or {})] == [("events-1", 10, 2)]


def test_a_loss_that_was_passed_over_is_none_when_losses_fail_again() -> None:
    some = [Messages(name="events-0").more(5), Messages(name="events-1").more(9)]
    at = stored(advanced({}, described(some), None, Limits()) or {})
    there = described([some[0].more(2)])
    at = stored(advanced(at, there, None, Limits(), fail_on_data_loss=False) or {})
    check_streams(at, lambda _, name: name == "events-0")
    more = described([some[0].more(4)])

    end = advanced(at, more, None, Limits())

    assert [(each.partition, each.rows) for each in ranges_of(end or {})] == [("events-0", 2)]
    anew = described([some[0].more(4), replace(some[1], id="b")])
    end = advanced(at, anew, None, Limits())
    assert [(each.partition, each.rows) for each in ranges_of(end or {})] == [("events-0", 2), ("events-1", 9)]


def test_the_places_of_so_many_partitions_are_kept_that_are_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "AWAY_MAX", 3)
    at: Positions = {}
    for number in range(8):
        some = [Messages(name=f"day-{number}").more(1), Messages(name="events").more(number + 1)]
        at = stored(advanced(at, described(some), None, Limits(), fail_on_data_loss=False) or {})

    away = [name for name, each in at.items() if each.is_away]
    assert away == ["day-4", "day-5", "day-6"]


def test_a_stream_that_was_declared_again_is_refused_and_with_leave_begun_anew() -> None:
    there = described([Messages(id="b").more(30)])
    at = {"events": Position("events", "a", 21, 20)}

    with pytest.raises(DataLossError, match="stream 'events' is not the one that was read"):
        advanced(at, there, None, Limits())
    end = advanced(at, there, None, Limits(), fail_on_data_loss=False)
    assert [(each.start, each.rows, each.id) for each in ranges_of(end or {})] == [(1, 30, "b")]


def test_a_stream_that_went_back_is_a_loss() -> None:
    there = described([Messages().more(10)])
    at = {"events": Position("events", "a", 21, 20)}

    with pytest.raises(DataLossError, match="ends at 11 and was read up to 21"):
        advanced(at, there, None, Limits())
    assert advanced(at, there, None, Limits(), fail_on_data_loss=False) is None
    there = described([Messages().more(10).more(5)])
    end = advanced({"events": replace(at["events"], next=11, rows=10)}, there, None, Limits())
    assert [each.rows for each in ranges_of(end or {})] == [5]


@given(some_messages(), st.integers(0, 200), LIMITS)
def test_a_run_over_what_is_available_ends_there(messages: Messages, more: int, limits: Limits) -> None:
    until = {"events": messages.next}
    there = described([messages.more(more)])
    at, rows = beginning(there), 0

    while (end := advanced(at, there, until, limits)) is not None:
        rows += sum(each.rows for each in ranges_of(end))
        at = end

    assert rows == len(messages.offsets)
    assert at["events"].next <= messages.next


def test_what_is_missing_from_a_planned_range_is_told() -> None:
    wanted = OffsetRange("events", 1, 11, rows=10, stream="events", id="a")
    messages = Messages().more(20)

    assert check_whole(wanted, messages.described()) == messages.described()
    with pytest.raises(DataLossError, match=r"^retention removed 4 of 10 messages of partition 'events' "):
        check_whole(wanted, messages.without(4).described())
    with pytest.raises(DataLossError, match="declared again"):
        check_whole(wanted, replace(messages, id="b").described())
    with pytest.raises(DataLossError, match="declared again"):
        check_whole(wanted, None)
    with pytest.raises(DataLossError, match="ends at 6, and this task reads up to 11"):
        check_whole(wanted, Messages().more(5).described())


def test_a_batch_never_has_more_tasks_than_may_be() -> None:
    messages = Messages().more(3 * SPLITS_MAX)

    end = advanced(beginning(described([messages])), described([messages]), None, Limits(split_rows_max=1))

    assert len(ranges_of(end or {})) == SPLITS_MAX
