"""Rows are counted by runs of offsets, whatever gaps there are between them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.described import Runs, number_of, parse_partitions
from penstock.spark.errors import DataLossError, SparkConnectorError
from support.partitions import RAISE, Messages, some_messages


@given(some_messages(), st.integers(0, 200), st.booleans())
def test_rows_before_any_offset_are_counted(messages: Messages, near: int, is_high: bool) -> None:
    there = messages.described()
    offset = max(1, near + (RAISE if is_high else 0))
    below = sum(each < offset for each in messages.offsets)

    assert there.runs.below(offset) == below
    assert there.runs.total == len(messages.offsets)
    if offset >= messages.first:
        assert there.rows_before(offset) == messages.removed + below


@given(some_messages())
def test_every_row_has_its_offset(messages: Messages) -> None:
    runs = messages.described().runs

    assert [runs.offset_of(row) for row in range(runs.total)] == list(messages.offsets)


def test_messages_that_are_gone_in_the_middle_count_before_it_only_where_there_were_numbers_for_them() -> None:
    """An archive that ends at 101, and a log that begins at 351: 249 messages are gone."""
    answer = {
        "stream": "a",
        "partition": "a",
        "id": "1",
        "first": 1,
        "next": 401,
        "rows": 400,
        "bytes": -1,
        "runs": [[1, 102], [351, 401]],
    }
    there = parse_partitions({"partitions": [answer]})["a"]

    assert [there.rows_before(offset) for offset in (1, 50, 351, 401)] == [0, 49, 350, 400]
    assert there.rows_between(1, 401) == 151
    assert there.bytes_of(10) is None


def answer_of(partitions: int, runs: int, rows: int, step: int = 2) -> dict[str, Any]:
    """Return an answer whose first partition has so many runs of one message."""
    one = {"stream": "a", "id": "1", "first": 1, "next": step * runs + 1, "rows": rows, "bytes": -1}
    found = [{**one, "partition": f"a-{number}", "runs": []} for number in range(partitions)]
    found[0]["runs"] = [[step * at + 1, step * at + 2] for at in range(runs)]
    return {"partitions": found}


@pytest.mark.parametrize(("partitions", "runs"), [(1, 1_000), (100, 1_000), (4_096, 24)])
def test_counts_are_not_exact_where_the_broker_may_have_joined_runs(partitions: int, runs: int) -> None:
    assert parse_partitions(answer_of(partitions, runs - 1, 5_000))["a-0"].is_exact
    assert not parse_partitions(answer_of(partitions, runs, 5_000))["a-0"].is_exact
    assert parse_partitions(answer_of(partitions, runs, 5_000 if partitions > 1 else 1_000)).keys() >= {"a-0"}


def test_runs_that_were_joined_over_skipped_offsets_are_refused() -> None:
    """They would have 2^32 messages that were never there."""
    with pytest.raises(
        SparkConnectorError,
        match=r"^partition 'a-0' has more gaps than the broker lists, so its rows cannot be counted",
    ) as refused:
        parse_partitions(answer_of(1, 1_000, 999))
    assert not isinstance(refused.value, DataLossError)


def test_an_archive_may_have_messages_that_a_broker_without_power_does_not_count_any_more() -> None:
    there = parse_partitions(answer_of(1, 10, 7))["a-0"]

    assert (there.is_exact, there.runs.total) == (True, 10)
    assert [there.rows_before(offset) for offset in (1, 3, 9, 21)] == [0, 0, 1, 7]


def test_a_partition_has_the_number_in_its_name_else_its_place() -> None:
    assert number_of("clicks", "clicks-12", 3) == 12
    assert number_of("clicks", "clicks", 0) == 0
    assert number_of("clicks", "clicks-north", 3) == 3
    assert number_of("clicks", "clicks-1x", 2) == 2


def test_runs_without_rows_have_none() -> None:
    assert (Runs([]).total, Runs([]).below(7), Runs([[3, 3]]).total) == (0, 0, 0)
