"""JSON bodies to Arrow arrays in Python, for executors without the native module: the same rows, many times slower.

A body becomes Python's JSON with numbers as they were written, and that becomes the values of the schema's types.
"""

import binascii
import json
import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.spark.bodies import REASON_LENGTH_MAX, BodyError, DecodeBodies

__all__ = ["plain_decoder"]

Convert: TypeAlias = Callable[[Any], Any]

DEPTH_MAX = 200
WHITE_SPACE = " \t\r\n"
BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
WHOLE = re.compile(r"-?[0-9]{1,19}")
NUMBER = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?)0*([0-9]+))?")
# The native decoder takes no number with more than 4,300 digits before its point.
TOO_LONG = re.compile(r"-?[0-9]{4301}")
DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
TIME = re.compile(
    DATE.pattern + r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
SPECIAL = {"NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "+INF": "inf", "-Infinity": "-inf", "-INF": "-inf"}
EPOCH = date(1970, 1, 1).toordinal()
DECIMAL_DIGITS_MAX = 38
ZONE_MINUTES_MAX = 18 * 60
MICROSECONDS = 1_000_000


class Number(str):
    """A number as it was written."""

    __slots__ = ()


class Pairs(list[tuple[str, Any]]):
    """An object: its names and values, in order, repeated ones included."""


class UnfitError(Exception):
    """A value that its type does not take; each struct around it adds its field's name."""

    def __init__(self, reason: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path


def number(text: str) -> Number:
    """Return a number as it is written; raise ValueError when it has too many digits."""
    if TOO_LONG.match(text):
        raise ValueError("number out of range")
    return Number(text)


READER = json.JSONDecoder(parse_float=number, parse_int=number, parse_constant=Number, object_pairs_hook=Pairs)


def plain_decoder(kind: pa.StructType) -> DecodeBodies:
    """Return the decoder for a struct of the bodies' fields."""
    convert = of_struct(kind)

    def decoded(bodies: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        values: list[Any] = []
        reasons: dict[int, str] = {}
        for row, body in enumerate(bodies.to_pylist()):
            try:
                values.append(convert(parsed(body)) if body else None)
            except UnfitError as error:
                values.append(None)
                place = f"field '{'.'.join(error.path)}': " if error.path else ""
                reasons[row] = f"{place}{error.reason}"[:REASON_LENGTH_MAX]
            except BodyError as error:
                values.append(None)
                reasons[row] = str(error)[:REASON_LENGTH_MAX]
        return pa.array(values, kind), reasons

    return decoded


def parsed(body: bytes) -> Pairs:
    """Return the object that a body is; raise BodyError."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise BodyError("the body is not JSON: it is not UTF-8") from None
    if not text.lstrip(WHITE_SPACE).startswith("{"):
        raise BodyError("the body is not a JSON object")
    if is_too_deep(text):
        raise BodyError(f"the body is not JSON: more than {DEPTH_MAX} levels")
    try:
        found: Pairs = READER.decode(text)
    except ValueError as error:
        raise BodyError(f"the body is not JSON: {error}") from None
    if SURROGATE.search(text) and not is_unicode(found):
        raise BodyError("the body is not JSON: half of a surrogate pair")
    return found


def is_too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return False
    depth = 0
    for token in BRACKETS.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if depth > DEPTH_MAX + 1:
            return True
    return False


def is_unicode(value: Any) -> bool:
    if isinstance(value, Pairs):
        return all(is_unicode(name) and is_unicode(each) for name, each in value)
    if isinstance(value, list):
        return all(map(is_unicode, value))
    return not isinstance(value, str) or not any("\ud800" <= character <= "\udfff" for character in value)


def of_type(kind: pa.DataType) -> Convert:
    """Return a function from Python's JSON to Arrow's value; it raises UnfitError."""
    convert = of_container(kind) or of_scalar(kind)

    def nullable(value: Any) -> Any:
        return None if value is None else convert(value)

    return nullable


def of_container(kind: pa.DataType) -> Convert | None:
    if pa.types.is_struct(kind):
        return of_struct(kind)
    if pa.types.is_map(kind):
        item = of_type(kind.item_type)
        return lambda value: [(name, item(each)) for name, each in taken(value, Pairs, kind)]
    if pa.types.is_list(kind):
        each = of_type(kind.value_type)
        return lambda value: list(map(each, taken(value, list, kind)))
    return None


def of_struct(kind: pa.StructType) -> Convert:
    fields = {field.name: of_type(field.type) for field in kind}

    def convert(value: Any) -> dict[str, Any]:
        found = {}
        for name, each in taken(value, Pairs, kind):
            if name in fields:
                try:
                    found[name] = fields[name](each)
                except UnfitError as error:
                    raise UnfitError(error.reason, (name, *error.path)) from None
        return found

    return convert


def taken(value: Any, wanted: type, kind: pa.DataType) -> Any:
    if isinstance(value, Pairs) is not (wanted is Pairs) or not isinstance(value, wanted):
        raise unfit(value, kind)
    return value


def of_scalar(kind: pa.DataType) -> Convert:
    if pa.types.is_string(kind):
        return written
    read = reader_of(kind)

    def convert(value: Any) -> Any:
        found = read(value)
        if found is None:
            raise unfit(value, kind)
        return found

    return convert


def reader_of(kind: pa.DataType) -> Convert:
    """Return a function that returns None for a value that does not fit."""
    if pa.types.is_boolean(kind):
        return lambda value: value if isinstance(value, bool) else None
    if pa.types.is_integer(kind):
        most = 2 ** (kind.bit_width - 1) - 1
        return lambda value: whole(value, -most - 1, most)
    if pa.types.is_floating(kind):
        return floating
    if pa.types.is_decimal(kind):
        return lambda value: decimal(value, kind.precision, kind.scale)
    if pa.types.is_date(kind):
        return day
    if pa.types.is_timestamp(kind):
        return lambda value: microseconds(value, kind.tz is not None)
    return base64


def unfit(value: Any, kind: pa.DataType) -> UnfitError:
    words = (
        *((bool, "a boolean"), (Number, "this number"), (str, "this text"), (Pairs, "an object"), (list, "an array")),
        (object, "this"),
    )
    found = next(word for each, word in words if isinstance(value, each))
    return UnfitError(f"{found} does not fit {kind}")


def whole(value: Any, least: int, most: int) -> int | None:
    if not isinstance(value, Number) or not WHOLE.fullmatch(value):
        return None
    number = int(value)
    return number if least <= number <= most else None


def floating(value: Any) -> float | None:
    if isinstance(value, Number):
        return float(value)
    return float(SPECIAL[value]) if isinstance(value, str) and value in SPECIAL else None


def decimal(value: Any, precision: int, scale: int) -> Decimal | None:
    """Return the number rounded half up; None when it has too many digits."""
    parts = NUMBER.fullmatch(value) if isinstance(value, str) else None
    if parts is None:
        return None
    sign, before, behind = parts[1], parts[2], parts[3] or ""
    digits = (before + behind).lstrip("0")
    # An exponent of so many digits decides alone.
    power = int((parts[4] or "") + (parts[5] or "0")[:20])
    left = len(digits) + power + scale - len(behind)
    if not digits or left < 0:
        return Decimal((0, (0,), -scale))
    if left > DECIMAL_DIGITS_MAX:
        return None
    unscaled = int(digits[:left].ljust(left, "0") or "0") + (digits[left : left + 1] >= "5")
    if unscaled >= 10**precision:
        return None
    return Decimal((int(sign == "-"), tuple(map(int, str(unscaled))), -scale))


def day(value: Any) -> date | None:
    parts = DATE.fullmatch(value) if is_text(value) else None
    return None if parts is None else date_of(parts)


def date_of(parts: re.Match[str]) -> date | None:
    try:
        return date(int(parts[1]), int(parts[2]), int(parts[3]))
    except ValueError:
        return None


def microseconds(value: Any, is_zoned: bool) -> int | None:
    if isinstance(value, Number) and is_zoned:
        return whole(Number(f"{value}000000") if WHOLE.fullmatch(value) else value, -(2**63), 2**63 - 1)
    parts = TIME.fullmatch(value) if is_text(value) else None
    on = None if parts is None else date_of(parts)
    if parts is None or on is None or (parts[8] and not is_zoned):
        return None
    hour, minute, second = (int(parts[place] or 0) for place in (4, 5, 6))
    zone = zone_minutes(parts[8] or "Z")
    if hour > 23 or minute > 59 or second > 59 or zone is None:
        return None
    minutes = ((on.toordinal() - EPOCH) * 24 + hour) * 60 + minute - zone
    return (minutes * 60 + second) * MICROSECONDS + int((parts[7] or "0").ljust(6, "0")[:6])


def zone_minutes(zone: str) -> int | None:
    if zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
    total = hours * 60 + minutes
    if minutes > 59 or total > ZONE_MINUTES_MAX:
        return None
    return -total if zone[0] == "-" else total


def base64(value: Any) -> bytes | None:
    if not is_text(value):
        return None
    try:
        found = binascii.a2b_base64(value, strict_mode=True)
    except ValueError:
        return None
    return found if binascii.b2a_base64(found, newline=False).decode() == value else None


def is_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Number)


def written(value: Any) -> str:
    """Return a text as it is, and another value as JSON without white space."""
    return value if isinstance(value, str) else written_json(value)


def written_json(value: Any) -> str:
    if isinstance(value, Number):
        return value
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{written_json(name)}:{written_json(each)}" for name, each in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
