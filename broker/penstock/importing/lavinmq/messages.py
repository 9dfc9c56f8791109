"""Reads the messages of one LavinMQ queue in order, without the acknowledged ones.

A file may be longer than the bytes written to it: the rest is zeros. Messages are checked against the queue's other
files, so that a hole in a file is not taken for its end. Memory holds one message at a time, and a bit for each byte at
which an acknowledged one may begin.
"""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import Final

from penstock.importing.lavinmq.acks import Acks
from penstock.importing.lavinmq.files import Folder, OpenFile
from penstock.importing.lavinmq.place import I64, U16, U32, U64, Bytes, FileBytes, corrupt
from penstock.model.errors import StorageError
from penstock.model.names import NAME_BYTES_MAX

SCHEMA: Final = 4
TIME_MS_MAX: Final = 1 << 47
"""Some time in the year 6429: a later time is invalid."""
SEGMENT_BYTES_MAX: Final = 2**32
"""LavinMQ acknowledges a message by its position in 32 bits."""
BODY_BYTES_MAX: Final = 512 * 1024 * 1024
"""The most that a broker's `message_bytes_max` can be."""
META_BYTES_MAX: Final = 4_096

_PRIORITY: Final = "prio."
_HEADERS: Final = 0x2000
_TIMESTAMP: Final = 0x0040
_UNKNOWN: Final = 0x0003
# Flag -> whether it is a text of one length byte; else one octet. In the order of the file.
_BEFORE_HEADERS: Final = (0x8000, 0x4000)
_OCTETS: Final = (0x1000, 0x0800)
_BEFORE_TIMESTAMP: Final = (0x0400, 0x0200, 0x0100, 0x0080)
_AFTER_TIMESTAMP: Final = (0x0020, 0x0010, 0x0008, 0x0004)


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message; `properties` are as on the wire: big-endian. `priority` is that of its file, 0 without priorities."""

    priority: int
    stored_at_ms: int
    exchange: bytes
    routing_key: bytes
    properties: bytes
    body: bytes


class QueueFolder:
    """The folder of one queue. `acked_count` grows while messages are read."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._files = frozenset(folder.files())
        self.name = _name(folder)
        self.acked_count = 0

    @property
    def bytes(self) -> int:
        """Return the bytes of its files on the disk, to report progress."""
        return sum(folder.disk_bytes(name) for _, folder in self._stores() for name in folder.files("msgs."))

    @property
    def is_paused(self) -> bool:
        """Return whether LavinMQ has paused delivery from it."""
        return "paused" in self._files

    @property
    def has_consumer_offsets(self) -> bool:
        """Return whether it is a stream with stored consumer offsets. Unused space is zeros."""
        if "consumer_offsets" not in self._files:
            return False
        with self._folder.file("consumer_offsets", SEGMENT_BYTES_MAX) as file:
            return file.read_at(0, min(1, file.size)) not in (b"", b"\0")

    def messages(self, on_corruption: Callable[[StorageError], None] | None = None) -> Iterator[FoundMessage]:
        """Read the messages, of a priority queue from the highest priority down.

        Raises StorageError with file and byte; or calls `on_corruption` and goes on with the next file.
        """
        self.acked_count = 0
        for priority, folder in self._stores():
            files = dict.fromkeys(folder.files())
            for name in files:
                if not name.startswith("msgs."):
                    continue
                try:
                    yield from self._segment(folder, name, files, priority)
                except StorageError as fault:
                    if on_corruption is None:
                        raise
                    on_corruption(fault)

    def _stores(self) -> list[tuple[int, Folder]]:
        """Return the folders with messages, and their priorities."""
        levels = [name for name in self._folder.folders() if name.startswith(_PRIORITY)]
        found = [(_priority_of(name), self._folder.folder(name)) for name in reversed(levels)]
        return [*found, (0, self._folder)]

    def _segment(self, folder: Folder, name: str, files: Container[str], priority: int) -> Iterator[FoundMessage]:
        with folder.file(name, SEGMENT_BYTES_MAX) as file:
            place = FileBytes(file)
            acks = Acks(folder, name.replace("msgs.", "acks."), file.size, files)
            count = 0
            if place.end:
                schema = place.number(U32, "the schema")
                if schema != SCHEMA:
                    raise corrupt(file.path, 0, f"the schema is {schema}, not {SCHEMA}")
            while not _is_at_end(place):
                at = place.at
                message = _read_message(place, priority)
                count += 1
                if acks.take(at):
                    self.acked_count += 1
                else:
                    yield message
            acks.check_all_taken()
            _check_count(folder, file, count, files)


def _priority_of(folder: str) -> int:
    number = folder.removeprefix(_PRIORITY)
    return int(number) if number.isascii() and number.isdecimal() else 0


def _name(folder: Folder) -> str:
    content = folder.read(".queue", NAME_BYTES_MAX)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise corrupt(folder.path / ".queue", error.start, "the queue's name is not UTF-8") from error


def _is_at_end(place: FileBytes) -> bool:
    """Return whether the file ends here: a time of zero, and only zeros after it."""
    if not place.is_zero_ahead():
        return False
    behind = place.next_not_zero()
    if behind is not None:
        count = place.end - behind
        raise corrupt(place.path, place.at, f"there are zeros, followed by {count} bytes of other data")
    return True


def _check_count(folder: Folder, segment: OpenFile, count: int, files: Container[str]) -> None:
    """Check the message count of a segment that LavinMQ has closed against the file that states it."""
    name = segment.path.name.replace("msgs.", "meta.")
    if name not in files:
        return
    content = folder.read(name, META_BYTES_MAX)
    if len(content) >= U32.size and U32.unpack_from(content)[0] != count:
        said = U32.unpack_from(content)[0]
        raise corrupt(segment.path, segment.size, f"it has {count} messages, and {name} says {said}")


def _read_message(place: Bytes, priority: int) -> FoundMessage:
    start = place.at
    time_ms = place.number(I64, "a message")
    if not 0 < time_ms < TIME_MS_MAX:
        raise corrupt(place.path, start, f"a message cannot have been stored at {time_ms} ms")
    exchange, key = place.short("an exchange's name"), place.short("a routing key")
    properties = _properties(place)
    at = place.at
    size = place.number(U64, "a body's size")
    if size > place.end - place.at:
        raise corrupt(place.path, at, f"a body of {size} bytes is announced, and {place.end - place.at} are left")
    if size > BODY_BYTES_MAX:
        raise corrupt(place.path, at, f"a body of {size:,} bytes is there, and a broker takes {BODY_BYTES_MAX:,}")
    return FoundMessage(priority, time_ms, exchange, key, properties, place.take(size, "a body"))


def _properties(place: Bytes) -> bytes:
    start = place.at
    flags = place.number(U16, "properties")
    if flags & _UNKNOWN:
        raise corrupt(place.path, start, f"property flags {flags:#06x} are invalid")
    parts = [flags.to_bytes(2, "big")]
    parts += (_text(place) for flag in _BEFORE_HEADERS if flags & flag)
    if flags & _HEADERS:
        parts.append(_headers(place))
    parts += (place.take(1, "a property") for flag in _OCTETS if flags & flag)
    parts += (_text(place) for flag in _BEFORE_TIMESTAMP if flags & flag)
    if flags & _TIMESTAMP:
        parts.append(place.take(8, "a timestamp")[::-1])
    parts += (_text(place) for flag in _AFTER_TIMESTAMP if flags & flag)
    return b"".join(parts)


def _text(place: Bytes) -> bytes:
    content = place.short("a property")
    return bytes((len(content),)) + content


def _headers(place: Bytes) -> bytes:
    content = place.wire_table("headers")
    return len(content).to_bytes(4, "big") + content


def count_messages(folder: QueueFolder) -> int:
    """Return how many messages a queue holds, as far as they can be read, to report what is left out."""
    return sum(1 for _ in folder.messages(lambda _: None))
