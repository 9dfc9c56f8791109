"""Argument values: equality, display, and refusals."""

import math

import pytest

from penstock.model.arguments import (
    DEPTH_MAX,
    ENTRIES_MAX,
    TEXT_BYTES_MAX,
    Decimal,
    Timestamp,
    Value,
    check_arguments,
    difference,
    freeze_arguments,
    is_same,
    show,
)
from penstock.model.errors import InvalidArgumentError, Thing, TooLargeError

QUEUE = Thing("queue", "orders", "/")


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), (1, True), (0, False), ("a", b"a"), (None, False), (None, ""), (1, "1"), (Timestamp(1), 1), ([], {})],
)
def test_values_of_different_types_are_never_the_same(one: Value, other: Value) -> None:
    assert not is_same(one, other)
    assert not is_same([one], [other])
    assert not is_same({"key": one}, {"key": other})


@pytest.mark.parametrize(
    "value", [None, True, 7, 2**40, 1.5, math.nan, "text", b"bytes", Timestamp(5), Decimal(2, 314), [1, "a"], {"a": []}]
)
def test_a_value_is_the_same_as_itself(value: Value) -> None:
    assert is_same(value, value)


def test_the_order_of_a_tables_keys_is_nothing() -> None:
    assert is_same({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert freeze_arguments({"a": 1, "b": 2}) == freeze_arguments({"b": 2, "a": 1})


def test_the_order_of_an_array_is_something() -> None:
    assert not is_same([1, 2], [2, 1])


def test_the_first_difference_is_named_with_both_values() -> None:
    assert difference({"a": 1, "b": 2}, {"a": 1, "b": 2.0}) == ("b", 2, 2.0)
    assert difference({"a": 1}, {}) == ("a", 1, None)
    assert difference({}, {"c": "x"}) == ("c", None, "x")
    assert difference({"a": [1]}, {"a": [1]}) is None


def test_an_argument_without_a_value_differs_from_an_absent_one() -> None:
    assert difference({"a": None}, {}) == ("a", None, None)


def test_a_long_value_is_shown_cut() -> None:
    assert show(True) == "true"
    assert show(None) == "absent"
    assert len(show("x" * 1000)) == 64


def nested(depth: int) -> Value:
    value: Value = "bottom"
    for _ in range(depth):
        value = [value]
    return value


def test_arguments_may_nest_to_the_bound_and_no_deeper() -> None:
    check_arguments(QUEUE, {"a": nested(DEPTH_MAX)})

    with pytest.raises(TooLargeError, match="queue 'orders' in vhost '/' is nested too deep; at most 32"):
        check_arguments(QUEUE, {"a": nested(DEPTH_MAX + 1)})


def test_a_hostile_depth_is_refused_without_recursion() -> None:
    with pytest.raises(TooLargeError):
        check_arguments(QUEUE, {"a": nested(100_000)})


def test_too_many_values_are_refused_wherever_they_are() -> None:
    check_arguments(QUEUE, {str(index): index for index in range(ENTRIES_MAX)})

    with pytest.raises(TooLargeError):
        check_arguments(QUEUE, {str(index): index for index in range(ENTRIES_MAX + 1)})
    with pytest.raises(TooLargeError):
        check_arguments(QUEUE, {"a": [0] * ENTRIES_MAX})
    with pytest.raises(TooLargeError):
        check_arguments(QUEUE, {str(index): [0, 0] for index in range(ENTRIES_MAX // 2)})


def test_too_much_text_is_refused_keys_included() -> None:
    check_arguments(QUEUE, {"a": "x" * (TEXT_BYTES_MAX - 1)})

    with pytest.raises(TooLargeError):
        check_arguments(QUEUE, {"a": "x" * TEXT_BYTES_MAX})
    with pytest.raises(TooLargeError):
        check_arguments(QUEUE, {f"{index:0255}": 0 for index in range(300)})


def test_a_key_longer_than_a_short_string_is_refused() -> None:
    check_arguments(QUEUE, {"k" * 255: 1})
    with pytest.raises(TooLargeError):
        check_arguments(QUEUE, {"k" * 256: 1})


@pytest.mark.parametrize(
    "value", [2**63, -(2**63) - 1, Timestamp(-1), Timestamp(2**64), Decimal(256, 0), Decimal(0, 2**31), "\ud800"]
)
def test_a_value_that_no_field_table_can_hold_is_refused_by_name(value: Value) -> None:
    with pytest.raises(InvalidArgumentError, match="'odd'") as refused:
        check_arguments(QUEUE, {"odd": value})
    assert refused.value.field == "odd"
