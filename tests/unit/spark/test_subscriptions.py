"""Which streams and partitions a read has."""

from dataclasses import replace

import pytest

from penstock.spark.errors import OptionError
from penstock.spark.subscriptions import parse_assignment, parse_list, parse_pattern
from support.partitions import Messages

THERE = {
    f"events-{number}": replace(Messages(name=f"events-{number}").described(), number=number) for number in range(4)
}


def test_a_pattern_matches_whole_names() -> None:
    found = parse_pattern("ev.*s")

    assert found.matching(["events", "my-events", "evs", "events-0"]) == ("events", "evs")
    assert found.has("events", "events-0")
    assert not found.has("events-old", "events-old")


def test_a_list_has_streams_with_commas_between_them() -> None:
    found = parse_list("events, orders")

    assert found.names == ("events", "orders")
    assert (found.has("orders", "orders-1"), found.has("other", "events"), found.has("other", "x")) == (
        True,
        True,
        False,
    )
    assert found.selected(THERE) == THERE


def test_assigned_partitions_are_chosen_by_number_or_name() -> None:
    found = parse_assignment('{"events": [0, "events-2"]}')

    assert found.names == ("events",)
    assert list(found.selected(THERE)) == ["events-0", "events-2"]
    with pytest.raises(OptionError, match="stream 'events' has no partition 7; its partitions are: events-0, "):
        parse_assignment('{"events": [7]}').selected(THERE)


@pytest.mark.parametrize(
    "value", ["", "{}", "[]", '{"events": []}', '{"events": [true]}', '{"events": 1}', '{"": [1]}']
)
def test_an_assignment_of_another_form_is_refused_with_an_example(value: str) -> None:
    with pytest.raises(ValueError, match="JSON such as"):
        parse_assignment(value)


def test_an_assignment_names_a_stream_once() -> None:
    with pytest.raises(ValueError, match=r"^it names 'events' twice; name each once$"):
        parse_assignment('{"events": [0], "events": [1]}')


def test_an_assignment_that_is_nested_too_deep_is_refused_with_an_example() -> None:
    with pytest.raises(ValueError, match="JSON such as"):
        parse_assignment('{"events": ' + "[" * 100_000)


@pytest.mark.parametrize("value", ["", "a,,b", "a,a"])
def test_a_list_has_every_name_once(value: str) -> None:
    with pytest.raises(ValueError, match="names of streams"):
        parse_list(value)


@pytest.mark.parametrize("value", ["", "(", "*"])
def test_a_pattern_must_be_one(value: str) -> None:
    with pytest.raises(ValueError, match="it must"):
        parse_pattern(value)
