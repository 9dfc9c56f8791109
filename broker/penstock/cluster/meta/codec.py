"""Commands, records and answers as bytes: one codec for all of them, which follows the types of their fields.

An object is JSON with its class and every field by name. Arguments are AMQP field tables, one for each key,
so that their types and their order stay. Bytes from outside are checked against the types; the rules check the values.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Generic, NamedTuple, TypeVar, Union, get_args, get_origin

from penstock.cluster.meta.changes import MetaChange, Record
from penstock.cluster.meta.commands import MetaAnswer, Request
from penstock.model.arguments import Arguments, Value
from penstock.model.field_table import FieldTableError, decode_table, encode_table

T = TypeVar("T")
CLASS: Final = "class"
"""The key of an object's class. No field can have this name."""
_PLAIN: Final = (NoneType, bool, int, float, str)


class CodecError(ValueError):
    """Bytes that are not of this version: corrupt, or of a newer one."""


class _Coder(NamedTuple):
    """Functions from a value to JSON's values and back."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


class Codec(Generic[T]):
    """Bytes of one type, or of one of several."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def encode(self, value: T) -> bytes:
        return json.dumps(_coder(self._kind).encode(value), ensure_ascii=False, separators=(",", ":")).encode()

    def decode(self, content: bytes) -> T:
        """Raise CodecError for bytes that encode no value of the type."""
        try:
            found = json.loads(content)
        except ValueError as error:
            raise CodecError(f"not JSON: {error}") from error
        value: T = _coder(self._kind).decode(found)
        return value


@cache
def _coder(kind: Any) -> _Coder:
    kind = _plain_kind(kind)
    if kind == Arguments:
        return _Coder(_encode_arguments, _decode_arguments)
    if kind in _PLAIN:
        return _plain(kind)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _union(parts)
    if origin is tuple:
        assert parts[1:] == (...,)
        return _sequence(_coder(parts[0]))
    if origin in (dict, Mapping):
        return _mapping(_coder(parts[1]))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum(kind)
    assert is_dataclass(kind), kind
    return _object(kind)


def _is_object(kind: Any) -> bool:
    return is_dataclass(kind)


def _plain_kind(kind: Any) -> Any:
    """Return the type of a name or a number that has a type of its own."""
    while hasattr(kind, "__supertype__"):
        kind = kind.__supertype__
    return kind


def _plain(kind: Any) -> _Coder:
    def decode(found: Any) -> Any:
        if type(found) is not kind:
            raise CodecError(f"a value of {kind.__name__} is expected, not {type(found).__name__}")
        return found

    return _Coder(lambda value: value, decode)


def _enum(kind: type[Enum]) -> _Coder:
    def decode(found: Any) -> Enum:
        try:
            return kind(found)
        except ValueError as error:
            raise CodecError(str(error)) from error

    return _Coder(lambda value: value.value, decode)


def _sequence(item: _Coder) -> _Coder:
    def decode(found: Any) -> tuple[Any, ...]:
        return tuple(map(item.decode, _expect(found, list)))

    return _Coder(lambda value: list(map(item.encode, value)), decode)


def _mapping(item: _Coder) -> _Coder:
    def decode(found: Any) -> dict[str, Any]:
        return {key: item.decode(value) for key, value in _expect(found, dict).items()}

    return _Coder(lambda value: {key: item.encode(each) for key, each in value.items()}, decode)


def _object(kind: Any) -> _Coder:
    """Return the coder of a dataclass. Its own coders are found when first used: types may contain themselves."""
    hints: dict[str, Any] = {each.name: each.type for each in fields(kind) if each.init}
    names = list(hints)

    def encode(value: Any) -> dict[str, Any]:
        return {CLASS: kind.__name__} | {name: _coder(hints[name]).encode(getattr(value, name)) for name in names}

    def decode(found: Any) -> Any:
        if _expect(found, dict).get(CLASS) != kind.__name__ or found.keys() != {CLASS, *names}:
            raise CodecError(f"{kind.__name__} has the fields {', '.join(names)}, not {', '.join(found)}")
        return kind(**{name: _coder(hints[name]).decode(found[name]) for name in names})

    return _Coder(encode, decode)


def _union(parts: tuple[Any, ...]) -> _Coder:
    """Return the coder of one of several types, of which at most one is no dataclass or None."""
    kinds: dict[Any, None] = dict.fromkeys(map(_plain_kind, parts))
    objects = {str(kind.__name__): _coder(kind) for kind in kinds if _is_object(kind)}
    plain = [_coder(kind) for kind in kinds if not _is_object(kind) and kind is not NoneType]
    has_none = NoneType in kinds
    assert len(plain) <= 1
    assert len(objects) + len(plain) + has_none == len(kinds)

    def encode(value: Any) -> Any:
        if value is None and has_none:
            return None
        return (objects.get(type(value).__name__) or plain[0]).encode(value)

    def decode(found: Any) -> Any:
        if found is None and has_none:
            return None
        if objects and isinstance(found, dict):
            coder = objects.get(str(found.get(CLASS)))
        else:
            coder = plain[0] if plain else None
        if coder is None:
            raise CodecError(f"one of {', '.join(objects)} is expected, not {str(found)[:64]}")
        return coder.decode(found)

    return _Coder(encode, decode)


def _encode_arguments(arguments: Arguments) -> list[str]:
    return [base64.b64encode(encode_table({key: value})).decode() for key, value in arguments.items()]


def _decode_arguments(found: Any) -> dict[str, Value]:
    arguments: dict[str, Value] = {}
    try:
        for item in _expect(found, list):
            arguments |= decode_table(base64.b64decode(_expect(item, str), validate=True))
    except (FieldTableError, binascii.Error, UnicodeDecodeError) as error:
        raise CodecError(f"arguments cannot be read: {error}") from error
    return arguments


def _expect(found: Any, kind: type[T]) -> T:
    if not isinstance(found, kind):
        raise CodecError(f"a {kind.__name__} is expected, not {type(found).__name__}")
    return found


REQUESTS: Final[Codec[Request]] = Codec(Request)
RECORDS: Final[Codec[Record]] = Codec(Record)
CHANGES: Final[Codec[tuple[MetaChange, ...]]] = Codec(tuple[MetaChange, ...])
ANSWERS: Final[Codec[MetaAnswer]] = Codec(MetaAnswer)
