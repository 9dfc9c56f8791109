"""Headers: unsupported values are refused by name."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from penstock.client.properties import Properties, encode_properties, read_properties
from penstock.client.values import Timestamp, Value
from penstock.v1 import message_pb2


def nested(depth: int) -> Value:
    value: Value = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (2**63, "'x' must be from"),
        (Decimal("NaN"), "'x' is NaN"),
        (Decimal("1e-300"), "'x' has an exponent"),
        (Decimal(2**40), "'x' must be from"),
        (Timestamp(-1), "'x' must be from"),
        (nested(65), "'x' is nested"),
    ],
)
def test_a_value_beyond_the_wire_is_refused_by_name(value: Value, words: str) -> None:
    with pytest.raises(ValueError, match="'x'") as refused:
        encode_properties(None, {"x": value})

    assert words in str(refused.value)


def test_a_kind_the_wire_has_not_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="'x' is of type object, which"):
        encode_properties(None, {"x": object()})  # type: ignore[dict-item]


def test_a_date_travels_as_a_timestamp() -> None:
    payload = encode_properties(None, {"at": datetime(2026, 3, 1, tzinfo=UTC)})

    assert read_properties(payload).headers == {"at": Timestamp(1_772_323_200)}


def test_a_timestamp_beyond_every_calendar_is_read() -> None:
    message = message_pb2.Properties()
    message.headers["at"].timestamp_value = 2**64 - 1

    assert read_properties(message.SerializeToString()).headers == {"at": Timestamp(2**64 - 1)}


def test_headers_add_to_those_of_the_properties() -> None:
    payload = encode_properties(Properties(headers={"a": 1, "b": 1}), {"b": 2})

    assert read_properties(payload).headers == {"a": 1, "b": 2}


def test_properties_that_say_nothing_cost_nothing() -> None:
    assert encode_properties(Properties()) is None
    assert encode_properties(None, {}) is None
    assert read_properties(None) == Properties()


def test_an_unknown_delivery_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="delivery_mode is 3"):
        encode_properties(Properties(delivery_mode=3))


def test_headers_are_written_in_the_order_of_their_names() -> None:
    """A map of protobuf is hashed, and its order differs between processes: readers of rows would see either."""
    names = [f"name{number}" for number in range(10, 30)]

    written = encode_properties(None, dict.fromkeys(reversed(names), 1)) or b""

    places = [written.index(name.encode() + b"\x12") for name in names]
    assert places == sorted(places)
