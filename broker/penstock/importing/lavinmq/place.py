"""Parser for one file of LavinMQ that names the byte of each error.

Integers are little-endian, except inside a field table, which is stored in network order as it came over the wire,
behind a little-endian length. Lengths are untrusted and checked against the bytes left before anything is read.
"""

from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Final, TypeVar

from penstock.importing.lavinmq.files import CHUNK_BYTES, OpenFile
from penstock.importing.lavinmq.tables import readable_table
from penstock.model.arguments import Value
from penstock.model.errors import StorageError, Thing
from penstock.model.field_table import FieldTableError, decode_table

T = TypeVar("T")

U16: Final = Struct("<H")
U32: Final = Struct("<I")
I64: Final = Struct("<q")
U64: Final = Struct("<Q")


def corrupt(path: Path, at: int, rule: str) -> StorageError:
    return StorageError(
        Thing("file", str(path)),
        f"is corrupt at byte {at}: {rule}",
        "restore it from a backup, or import the readable part with --partial",
    )


class Bytes:
    """Bytes of a file. `at` is the next position and never goes back; `end` is the limit.

    Both count from the file's first byte; `start` is the position of `content` in it.
    """

    __slots__ = ("_content", "_start", "_stop", "at", "end", "path")

    def __init__(self, path: Path, content: bytes, start: int = 0) -> None:
        self.path = path
        self.at = start
        self.end = start + len(content)
        self._content = content
        self._start = start
        self._stop = self.end

    def take(self, count: int, what: str) -> bytes:
        start, stop = self.at, self.at + count
        if stop > self.end:
            raise corrupt(self.path, start, f"{what} needs {count} bytes, and {self.end - start} are left")
        if stop > self._stop:
            self._fill(count)
        self.at = stop
        return self._content[start - self._start : stop - self._start]

    def _fill(self, count: int) -> None:
        """Load at least so many bytes from `at` on into `_content`. Here all bytes are loaded."""

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
            raise corrupt(self.path, at, f"{what} is not UTF-8") from error

    def table(self, what: str) -> dict[str, Value]:
        return self._decoded(decode_table, what)

    def wire_table(self, what: str) -> bytes:
        """Return a table in a form that this broker reads, without its length."""
        return self._decoded(readable_table, what)

    def _decoded(self, decode: Callable[[bytes], T], what: str) -> T:
        size = self.number(U32, what)
        at = self.at
        content = self.take(size, what)
        try:
            return decode(content)
        except FieldTableError as error:
            raise corrupt(self.path, at + error.at, f"{what}: {error}") from error


class FileBytes(Bytes):
    """The bytes of an open file, with a window in memory: one value, or a chunk."""

    __slots__ = ("_file",)

    def __init__(self, file: OpenFile) -> None:
        super().__init__(file.path, b"")
        self._file = file
        self.end = file.size

    def is_zero_ahead(self) -> bool:
        """Return whether the next eight bytes, or all that are left, are zeros."""
        count = min(8, self.end - self.at)
        if self.at + count > self._stop:
            self._fill(count)
        offset = self.at - self._start
        return not self._content[offset : offset + count].strip(b"\0")

    def next_not_zero(self) -> int | None:
        """Return the position of the next byte that is not zero, None when only zeros are left. Holes are skipped."""
        position = self._file.next_data(self.at)
        while position < self.end:
            chunk = self._file.read_at(position, min(CHUNK_BYTES, self.end - position))
            content = chunk.lstrip(b"\0")
            if content or not chunk:
                return position + len(chunk) - len(content) if content else None
            position = self._file.next_data(position + len(chunk))
        return None

    def _fill(self, count: int) -> None:
        wanted = min(max(count, CHUNK_BYTES), self.end - self.at)
        self._content = self._file.read_at(self.at, wanted)
        self._start, self._stop = self.at, self.at + len(self._content)
        if len(self._content) < wanted:
            raise corrupt(self.path, self._stop, "it became shorter during the read")
