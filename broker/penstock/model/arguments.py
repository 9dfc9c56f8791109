"""Values of arguments and headers, and their equality.

AMQP's integer widths are one type here; booleans, integers and floats are three. Sizes and depth are bounded, because
arguments are untrusted. This module does not know the meaning of any argument.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from struct import pack
from typing import Final, TypeAlias

from penstock.model.errors import InvalidArgumentError, Thing, TooLargeError

DEPTH_MAX: Final = 32
ENTRIES_MAX: Final = 1024
"""Values in one set of arguments, nested ones included."""
TEXT_BYTES_MAX: Final = 64 * 1024
"""Bytes of the names, texts and byte strings of one set of arguments together."""
KEY_BYTES_MAX: Final = 255
SHOWN_MAX: Final = 64
INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Timestamp:
    """Seconds since 1970-01-01 UTC, as in AMQP."""

    seconds: int


@dataclass(frozen=True, slots=True)
class Decimal:
    """unscaled / 10^scale."""

    scale: int
    unscaled: int


Value: TypeAlias = bool | int | float | str | bytes | Timestamp | Decimal | list["Value"] | dict[str, "Value"] | None
Arguments: TypeAlias = Mapping[str, Value]
Frozen: TypeAlias = tuple[object, ...]
"""A hashable form of a value that compares by type and value."""

NO_ARGUMENTS: Final[Arguments] = {}


def freeze(value: Value) -> Frozen:
    """Return an equal tuple for equal arguments. The order of a table's keys does not matter."""
    if isinstance(value, dict):
        return ("table", *((key, freeze(value[key])) for key in sorted(value)))
    if isinstance(value, list):
        return ("array", *(freeze(item) for item in value))
    if isinstance(value, float):
        # By its bits, so that NaN equals itself and a declare can be repeated.
        return ("float", pack(">d", value))
    return (type(value).__name__, value)


def freeze_arguments(arguments: Arguments) -> Frozen:
    return tuple((key, freeze(arguments[key])) for key in sorted(arguments)) if arguments else ()


def is_same(one: Value, other: Value) -> bool:
    return freeze(one) == freeze(other)


def show(value: Value) -> str:
    """Return a value as shown in messages to users, truncated when long."""
    text = "absent" if value is None else repr(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 3] + "..."


def difference(wanted: Arguments, found: Arguments) -> tuple[str, Value, Value] | None:
    """Return the first argument by name that differs, with both values (None also for an absent one)."""
    for key in sorted(wanted.keys() | found.keys()):
        if key not in wanted or key not in found or not is_same(wanted[key], found[key]):
            return key, wanted.get(key), found.get(key)
    return None


def check_arguments(thing: Thing, arguments: Arguments) -> None:
    """Refuse arguments that are too deep, too many, too large, or of an unknown type.

    This uses no recursion: the depth is untrusted.
    """
    waiting: list[tuple[str, Value, int]] = [(key, value, 1) for key, value in arguments.items()]
    entry_count = 0
    text_bytes = 0
    for key in arguments:
        text_bytes += _key_bytes(thing, key)
    while waiting:
        name, value, depth = waiting.pop()
        entry_count += 1
        if isinstance(value, (list, dict)):
            _check_bound(thing, "is nested too deep", depth, DEPTH_MAX)
            _check_bound(thing, "has too many values in its arguments", entry_count + len(value), ENTRIES_MAX)
        if isinstance(value, dict):
            text_bytes += sum(_key_bytes(thing, key) for key in value)
            waiting += [(name, item, depth + 1) for item in value.values()]
        elif isinstance(value, list):
            waiting += [(name, item, depth + 1) for item in value]
        else:
            text_bytes += _check_scalar(thing, name, value)
    _check_bound(thing, "has too many values in its arguments", entry_count, ENTRIES_MAX)
    _check_bound(thing, "has too much text in its arguments", text_bytes, TEXT_BYTES_MAX)


def _check_bound(thing: Thing, rule: str, size: int, size_max: int) -> None:
    if size > size_max:
        raise TooLargeError(thing, rule, size=size, size_max=size_max)


def _key_bytes(thing: Thing, key: str) -> int:
    size = _text_bytes(thing, key[:32], key)
    _check_bound(thing, f"has an argument whose name starts with '{key[:32]}' and is too long", size, KEY_BYTES_MAX)
    return size


def _check_scalar(thing: Thing, name: str, value: Value) -> int:
    """Return the bytes of text in a value."""
    if isinstance(value, str):
        return _text_bytes(thing, name, value)
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return 0
    if isinstance(value, int):
        _check_range(thing, name, value, INTEGER_MIN, INTEGER_MAX)
    elif isinstance(value, Timestamp):
        _check_range(thing, name, value.seconds, 0, 2**64 - 1)
    elif isinstance(value, Decimal):
        _check_range(thing, name, value.scale, 0, 255)
        _check_range(thing, name, value.unscaled, -(2**31), 2**31 - 1)
    else:
        rule = f"has an argument '{name}' of an unknown type"
        raise InvalidArgumentError(thing, rule, "send another value", field=name)
    return 0


def _check_range(thing: Thing, name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidArgumentError(
            thing, f"has an argument '{name}' out of range", f"send a number from {low} to {high}", field=name
        )


def _text_bytes(thing: Thing, name: str, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        shown = name.encode(errors="backslashreplace").decode()
        raise InvalidArgumentError(
            thing, f"has an argument '{shown}' that is not valid Unicode", "send text as UTF-8", field=shown
        ) from error
