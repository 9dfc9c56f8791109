"""Lag: rows between the end of a batch and the end of the stream, by partition."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.lags import PartitionLag, described, lags_of
from penstock.spark.positions import Position, offset_json


def offset(**rows: int) -> str:
    return json.dumps(offset_json({name: Position("s", f"id-{name}", 2**40 + at, at) for name, at in rows.items()}))


def test_the_lag_of_a_partition_is_in_rows_and_not_in_offsets() -> None:
    here = json.dumps(offset_json({"s-0": Position("s", "a", 81, 80)}))
    there = json.dumps(offset_json({"s-0": Position("s", "a", 4_294_967_478, 200)}))

    assert lags_of([(here, there)]) == [PartitionLag("s", "s-0", 120)]


def test_a_partition_that_is_new_or_another_one_has_no_lag_yet() -> None:
    other = json.dumps(offset_json({"a": Position("s", "another", 1, 1), "b": Position("s", "id-b", 9, 9)}))

    assert lags_of([(offset(a=1), offset(a=4, new=7))]) == [PartitionLag("s", "a", 3)]
    assert lags_of([(other, offset(a=4, b=10))]) == [PartitionLag("s", "b", 1)]


def test_of_two_sources_with_one_partition_the_slower_one_counts() -> None:
    assert lags_of([(offset(a=1), offset(a=4)), (offset(a=3), offset(a=4))]) == [PartitionLag("s", "a", 3)]


@pytest.mark.parametrize("other", [None, "", "7", "[]", "{}", '{"version": 3}', '{"logOffset": 4}', "not JSON"])
def test_sources_of_another_format_are_left_out(other: str | None) -> None:
    assert lags_of([(other, other), (offset(a=1), other), (other, offset(a=1))]) == []


@given(st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 99), st.integers(0, 99))))
def test_no_lag_is_below_zero(rows: dict[str, tuple[int, int]]) -> None:
    ends = offset(**{name: end for name, (end, _) in rows.items()})
    latest = offset(**{name: last for name, (_, last) in rows.items()})

    lags = lags_of([(ends, latest)])

    assert {lag.partition: lag.rows for lag in lags} == {name: max(0, last - end) for name, (end, last) in rows.items()}


def test_a_line_has_the_sum_and_the_partitions_that_are_most_behind() -> None:
    lags = [PartitionLag("s", f"s-{number}", number * 1_000) for number in range(13)]

    assert described(lags).startswith("78,000 rows behind in 13 partitions: s-12 12,000, s-11 11,000, ")
    assert described(lags).endswith("s-3 3,000 and 2 more")
    assert described([PartitionLag("s", "s", 0)]) == "0 rows behind in 1 partition"
