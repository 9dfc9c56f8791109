"""Python values <-> the typed values that headers and arguments carry.

A written value reads back equal; a value that the wire cannot carry is refused by the name of its field. Values read
from a broker came from any publisher: they are taken whatever their size, within protobuf's own bounds.
"""

from collections.abc import Mapping, MutableMapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TypeAlias

from penstock.v1 import message_pb2

__all__ = ["Timestamp", "Value", "read_table", "write_table"]

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
UINT64_MAX = 2**64 - 1
DECIMAL_SCALE_MAX = 255
DEPTH_MAX = 64


class Timestamp(int):
    """Seconds since 1970-01-01 UTC. A kind of its own, so that it travels as a timestamp and not as an integer."""

    __slots__ = ()


Value: TypeAlias = (
    "bool | int | float | str | bytes | Timestamp | datetime | Decimal | Mapping[str, Value] | Sequence[Value] | None"
)


def write_table(values: Mapping[str, Value], fields: MutableMapping[str, message_pb2.Value], depth: int = 0) -> None:
    """Write `values` into a protobuf map of values. Raises TypeError or ValueError naming the field."""
    for name, value in values.items():
        if not isinstance(name, str):
            raise TypeError(f"a field's name must be a str, not {type(name).__name__}")
        _write(name, value, fields[name], depth)


def read_table(fields: Mapping[str, message_pb2.Value]) -> dict[str, Value]:
    """Return the Python values of a protobuf map of values."""
    # items() of a protobuf map is ten times as slow, and most maps are empty.
    return {name: _read(fields[name]) for name in fields}


def _write(name: str, value: Value, out: message_pb2.Value, depth: int) -> None:
    match value:
        case None:
            out.Clear()
        case bool():
            out.bool_value = value
        case Timestamp():
            out.timestamp_value = _bounded(name, value, 0, UINT64_MAX)
        case int():
            out.int_value = _bounded(name, value, INT64_MIN, INT64_MAX)
        case float():
            out.double_value = value
        case str():
            out.string_value = value
        case bytes() | bytearray() | memoryview():
            out.bytes_value = bytes(value)
        case datetime():
            out.timestamp_value = _bounded(name, int(value.timestamp()), 0, UINT64_MAX)
        case Decimal():
            _write_decimal(name, value, out.decimal_value)
        case _:
            _write_nested(name, value, out, depth)


def _write_nested(name: str, value: Value, out: message_pb2.Value, depth: int) -> None:
    if depth >= DEPTH_MAX:
        raise ValueError(f"field '{name}' is nested more than {DEPTH_MAX} deep")
    if isinstance(value, Mapping):
        out.table_value.SetInParent()
        write_table(value, out.table_value.fields, depth + 1)
    elif isinstance(value, Sequence):
        out.array_value.SetInParent()
        for item in value:
            _write(name, item, out.array_value.items.add(), depth + 1)
    else:
        raise TypeError(f"field '{name}' is of type {type(value).__name__}, which headers and arguments cannot contain")


def _write_decimal(name: str, value: Decimal, out: message_pb2.Decimal) -> None:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"field '{name}' is {value}, which is not a number")
    if not -DECIMAL_SCALE_MAX <= exponent <= DECIMAL_SCALE_MAX:
        raise ValueError(f"field '{name}' has an exponent beyond {DECIMAL_SCALE_MAX}")
    unscaled = int("".join(map(str, digits)) or "0") * 10 ** max(exponent, 0)
    out.SetInParent()
    out.unscaled = _bounded(name, -unscaled if sign else unscaled, INT32_MIN, INT32_MAX)
    out.scale = max(-exponent, 0)


def _bounded(name: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise ValueError(f"field '{name}' must be from {low} to {high}")
    return int(value)


def _read(value: message_pb2.Value) -> Value:
    kind = value.WhichOneof("kind")
    if kind is None:
        return None
    if kind == "timestamp_value":
        return Timestamp(value.timestamp_value)
    if kind == "table_value":
        return read_table(value.table_value.fields)
    if kind == "array_value":
        return [_read(item) for item in value.array_value.items]
    if kind == "decimal_value":
        unscaled = value.decimal_value.unscaled
        digits = tuple(int(digit) for digit in str(abs(unscaled)))
        return Decimal((int(unscaled < 0), digits, -value.decimal_value.scale))
    plain: bool | int | float | str | bytes = getattr(value, kind)
    return plain
