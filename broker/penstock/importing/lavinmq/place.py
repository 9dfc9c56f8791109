"""Walks over the bytes of one file of LavinMQ and names the byte where something is wrong. Integers are little-endian,
but for those inside a field table, which is stored as it came over the wire, in network order, behind a length that is
little-endian again. Lengths come from outside and are held against what is there before anything is taken."""

from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Final, TypeVar

from penstock.importing.lavinmq.tables import readable_table
from penstock.model.arguments import Value
from penstock.model.errors import StorageError, Thing
from penstock.model.field_table import FieldTableError, decode_table

T = TypeVar("T")

U16: Final = Struct("<H")
U32: Final = Struct("<I")
I64: Final = Struct("<q")
U64: Final = Struct("<Q")


def damaged(path: Path, at: int, rule: str) -> StorageError:
    return StorageError(
        Thing("file", str(path)),
        f"is damaged at byte {at}: {rule}",
        "mend it or take it from a backup, or import what can be read with --partial",
    )


class Bytes:
    """`at` is where the next thing is taken from; `end` is where they must stop."""

    __slots__ = ("at", "content", "end", "path")

    def __init__(self, path: Path, content: bytes, at: int = 0) -> None:
        self.path = path
        self.content = content
        self.at = at
        self.end = len(content)

    def take(self, count: int, what: str) -> bytes:
        start, stop = self.at, self.at + count
        if stop > self.end:
            raise damaged(self.path, start, f"{what} needs {count} bytes, and {self.end - start} are left")
        self.at = stop
        return self.content[start:stop]

    def number(self, shape: Struct, what: str) -> int:
        value: int = shape.unpack(self.take(shape.size, what))[0]
        return value

    def octet(self, what: str) -> int:
        return self.take(1, what)[0]

    def short(self, what: str) -> bytes:
        return self.take(self.octet(what), what)

    def name(self, what: str) -> str:
        at = self.at
        try:
            return self.short(what).decode()
        except UnicodeDecodeError as error:
            raise damaged(self.path, at, f"{what} is not UTF-8") from error

    def table(self, what: str) -> dict[str, Value]:
        return self._decoded(decode_table, what)

    def wire_table(self, what: str) -> bytes:
        """Return a table as bytes that this broker reads, without its length."""
        return self._decoded(readable_table, what)

    def _decoded(self, decode: Callable[[bytes], T], what: str) -> T:
        size = self.number(U32, what)
        at = self.at
        content = self.take(size, what)
        try:
            return decode(content)
        except FieldTableError as error:
            raise damaged(self.path, at + error.at, f"{what}: {error}") from error
