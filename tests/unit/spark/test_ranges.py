"""The arithmetic of offsets, checked for any numbers: no gap, no overlap, always some progress."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.errors import DataLossError, OptionError
from penstock.spark.options import EARLIEST, LATEST, Place
from penstock.spark.ranges import OffsetRange, Offsets, admitted, bytes_to_rows, ranges_between, resolved, split

NAMES = ("events-0", "events-1", "events-2")
OFFSETS = st.fixed_dictionaries(dict.fromkeys(NAMES, st.integers(0, 10_000)))


@given(OFFSETS, OFFSETS, st.integers(1, 50))
def test_splits_cover_every_offset_once(start: Offsets, length: Offsets, splits_min: int) -> None:
    end = {name: start[name] + length[name] for name in NAMES}
    ranges = ranges_between(start, end, dict.fromkeys(NAMES, 0), fail_on_data_loss=True)

    parts = split(ranges, splits_min)

    for name in NAMES:
        own = [part for part in parts if part.partition == name]
        assert [part.number for part in own] == list(range(len(own)))
        assert all(before.end == after.start for before, after in pairwise(own))
        assert all(part.size > 0 and part.count == len(own) for part in own)
        assert sum(part.size for part in own) == length[name]
    assert len(parts) >= min(splits_min, sum(length.values()))


@given(OFFSETS, OFFSETS, st.integers(1, 5_000))
def test_triggers_reach_the_end_and_never_go_beyond_it(start: Offsets, length: Offsets, rows_max: int) -> None:
    end = {name: start[name] + length[name] for name in NAMES}
    at, rounds = start, 0

    while at != end:
        after = admitted(at, end, rows_max)
        assert all(at[name] <= after[name] <= end[name] for name in NAMES)
        assert after != at
        assert sum(after.values()) - sum(at.values()) <= rows_max + len(NAMES)
        at, rounds = after, rounds + 1
        if rounds > 20:
            break

    assert admitted(end, end, rows_max) == end


def test_an_end_that_went_back_moves_nothing_back() -> None:
    assert admitted({"a": 10}, {"a": 4}, 100) == {"a": 10}


def test_offsets_that_retention_took_fail_the_reading_or_are_left_out() -> None:
    start, end, first = {"a": 5}, {"a": 20}, {"a": 12}

    with pytest.raises(DataLossError, match="offsets 5 to 11 of 'a'"):
        ranges_between(start, end, first, fail_on_data_loss=True)
    assert ranges_between(start, end, first, fail_on_data_loss=False) == [OffsetRange("a", 12, 20)]
    assert ranges_between(start, {"a": 9}, first, fail_on_data_loss=False) == []


def test_offsets_that_went_before_they_were_archived_fail_the_reading_or_are_passed_over() -> None:
    gone = {"a": (8, 12)}

    def found(start: int, end: int, fails: bool) -> list[OffsetRange]:
        return ranges_between({"a": start}, {"a": end}, {"a": 1}, fails, gone)

    with pytest.raises(DataLossError, match="offsets 8 to 11 of 'a'"):
        found(1, 20, True)
    with pytest.raises(DataLossError, match="offsets 9 to 9 of 'a'"):
        found(9, 10, True)
    assert found(1, 20, False) == [OffsetRange("a", 1, 20)]
    assert found(1, 8, True) == [OffsetRange("a", 1, 8)]
    assert found(12, 20, True) == [OffsetRange("a", 12, 20)]


def test_places_become_offsets() -> None:
    first, end = {"a": 1, "b": 3}, {"a": 9, "b": 7}

    assert resolved(EARLIEST, first, end, {}) == first
    assert resolved(LATEST, first, end, {}) == end
    assert resolved(Place("times", 5), first, end, {"a": 4, "b": 7}) == {"a": 4, "b": 7}
    assert resolved(Place("offsets", None, {"a": -1, "b": -2}), first, end, {}) == {"a": 9, "b": 3}
    assert resolved(Place("offsets", None, {"a": 5, "b": 6}), first, end, {}) == {"a": 5, "b": 6}


def test_offsets_name_every_partition_and_no_other() -> None:
    with pytest.raises(OptionError, match="is set for partition 'b'"):
        resolved(Place("offsets", None, {"a": 1}), {"a": 1, "b": 1}, {"a": 2, "b": 2}, {})
    with pytest.raises(OptionError, match="no partition 'c'"):
        resolved(Place("offsets", None, {"a": 1, "c": 1}), {"a": 1}, {"a": 2}, {})


def test_bytes_become_rows_by_the_mean_and_never_none() -> None:
    assert bytes_to_rows(1_000, 10_000, 100) == 10
    assert bytes_to_rows(1, 10_000, 100) == 1
    assert bytes_to_rows(1_000, -1, -1) == 1_000
