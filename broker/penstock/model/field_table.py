"""AMQP 0-9-1 field tables: arguments to bytes and back, big-endian as on the wire, without the table's own length.

Encoding is canonical: keys are sorted and an integer takes 32 bits when it fits, else 64, so equal arguments have equal
bytes. Decoding reads every tag that RabbitMQ and LavinMQ write, and its depth is bounded.
"""

from struct import Struct
from typing import Final

from penstock.model.arguments import DEPTH_MAX, Arguments, Decimal, Timestamp, Value

_U8: Final = Struct(">B")
_U32: Final = Struct(">I")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")
_U64: Final = Struct(">Q")
_DOUBLE: Final = Struct(">d")
_DECIMAL: Final = Struct(">Bi")
_TAGS: Final = (b"b", b"B", b"s", b"U", b"u", b"I", b"i", b"l", b"L", b"f", b"d")
_NUMBERS: Final = {tag: Struct(">" + code) for tag, code in zip(_TAGS, "bBhhHiIqqfd", strict=True)}


class FieldTableError(ValueError):
    """Bytes that are no field table. The text says what is wrong; `at` is the byte's position."""

    def __init__(self, rule: str, at: int) -> None:
        super().__init__(f"{rule} at byte {at} of a field table")
        self.at = at


def encode_table(arguments: Arguments) -> bytes:
    """Encode arguments that passed `arguments.check_arguments`."""
    parts: list[bytes] = []
    for key in sorted(arguments):
        name = key.encode()
        parts += (_U8.pack(len(name)), name, _encode_value(arguments[key]))
    return b"".join(parts)


def decode_table(table: bytes) -> dict[str, Value]:
    return _Reader(table).table(0, len(table), 1)


def _encode_value(value: Value) -> bytes:
    if value is None:
        return b"V"
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, int):
        return b"I" + _I32.pack(value) if -(2**31) <= value < 2**31 else b"l" + _I64.pack(value)
    if isinstance(value, float):
        return b"d" + _DOUBLE.pack(value)
    if isinstance(value, str):
        return _long(b"S", value.encode())
    if isinstance(value, bytes):
        return _long(b"x", value)
    if isinstance(value, Timestamp):
        return b"T" + _U64.pack(value.seconds)
    if isinstance(value, Decimal):
        return b"D" + _DECIMAL.pack(value.scale, value.unscaled)
    if isinstance(value, list):
        return _long(b"A", b"".join(_encode_value(item) for item in value))
    return _long(b"F", encode_table(value))


def _long(tag: bytes, content: bytes) -> bytes:
    return tag + _U32.pack(len(content)) + content


class _Reader:
    """Reader of the bytes; every step knows where its container ends."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._at = 0

    def table(self, start: int, end: int, depth: int) -> dict[str, Value]:
        self._check_depth(depth)
        self._at = start
        fields: dict[str, Value] = {}
        while self._at < end:
            at = self._at
            name = self._take(self._take(1, end)[0], end)
            try:
                key = name.decode()
            except UnicodeDecodeError as error:
                raise FieldTableError("a name that is not UTF-8", at) from error
            fields[key] = self._value(end, depth)
        return fields

    def _array(self, end: int, depth: int) -> list[Value]:
        self._check_depth(depth)
        items: list[Value] = []
        while self._at < end:
            items.append(self._value(end, depth))
        return items

    def _value(self, end: int, depth: int) -> Value:
        at = self._at
        tag = self._take(1, end)
        if number := _NUMBERS.get(tag):
            value: int | float = number.unpack(self._take(number.size, end))[0]
            return value
        if tag == b"V":
            return None
        if tag == b"t":
            return self._take(1, end) != b"\x00"
        if tag == b"T":
            return Timestamp(_U64.unpack(self._take(8, end))[0])
        if tag == b"D":
            scale, unscaled = _DECIMAL.unpack(self._take(5, end))
            return Decimal(scale, unscaled)
        if tag in (b"S", b"x"):
            return self._text(tag, self._take(self._length(end), end))
        if tag in (b"F", b"A"):
            stop = self._length(end) + self._at
            if stop > end:
                raise FieldTableError("a container longer than its parent", at)
            return self.table(self._at, stop, depth + 1) if tag == b"F" else self._array(stop, depth + 1)
        raise FieldTableError(f"unknown tag {tag!r}", at)

    @staticmethod
    def _text(tag: bytes, content: bytes) -> str | bytes:
        """Decode a long string; one that is not UTF-8 stays bytes."""
        if tag == b"x":
            return content
        try:
            return content.decode()
        except UnicodeDecodeError:
            return content

    def _length(self, end: int) -> int:
        length: int = _U32.unpack(self._take(4, end))[0]
        return length

    def _take(self, size: int, end: int) -> bytes:
        at = self._at
        if at + size > end:
            raise FieldTableError(f"{size} bytes are missing", at)
        self._at = at + size
        return self._source[at : at + size]

    def _check_depth(self, depth: int) -> None:
        # One more than a declaration may have: the outermost table counts here.
        if depth > DEPTH_MAX + 1:
            raise FieldTableError(f"nesting deeper than {DEPTH_MAX}", self._at)
