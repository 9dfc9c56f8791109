"""The messages of one LavinMQ queue, in their order, without those that were acknowledged. A file may be longer than
what was written into it: the rest is zeros. What is read is held against what the queue's other files say of it, so
that a hole in a file is not taken for its end."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.importing.lavinmq.place import I64, U16, U32, U64, Bytes, damaged
from penstock.model.errors import StorageError

SCHEMA: Final = 4
TIME_MS_MAX: Final = 1 << 47
"""Some time in the year 6429: a later one is no time."""

_HEADERS: Final = 0x2000
_TIMESTAMP: Final = 0x0040
_UNKNOWN: Final = 0x0003
# Flag -> whether it is a text of one length byte; else one octet. In the order in which they stand.
_BEFORE_HEADERS: Final = (0x8000, 0x4000)
_OCTETS: Final = (0x1000, 0x0800)
_BEFORE_TIMESTAMP: Final = (0x0400, 0x0200, 0x0100, 0x0080)
_AFTER_TIMESTAMP: Final = (0x0020, 0x0010, 0x0008, 0x0004)


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """`properties` are as on the wire: big-endian."""

    stored_at_ms: int
    exchange: bytes
    routing_key: bytes
    properties: bytes
    body: bytes


class QueueFolder:
    """The folder of one queue. `acked_count` grows while messages are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = (path / ".queue").read_text()
        self.acked_count = 0

    @property
    def bytes(self) -> int:
        """What its files take on the disk: a measure for progress."""
        return sum(_size(path) for path in self.path.rglob("msgs.*"))

    @property
    def is_paused(self) -> bool:
        """Whether LavinMQ was told to deliver nothing from it."""
        return (self.path / "paused").exists()

    @property
    def has_consumer_offsets(self) -> bool:
        """Whether it is a stream that remembers how far consumers have read. Room that was not used is zeros."""
        try:
            with (self.path / "consumer_offsets").open("rb") as file:
                return file.read(1) not in (b"", b"\0")
        except FileNotFoundError:
            return False

    def messages(self, on_damage: Callable[[StorageError], None] | None = None) -> Iterator[FoundMessage]:
        """Those of a priority queue from the highest priority down. Raises StorageError with file and byte; or tells
        `on_damage` and goes on with the next file."""
        self.acked_count = 0
        levels = sorted(self.path.glob("prio.*"), reverse=True)
        for folder in (*levels, self.path):
            for segment in sorted(folder.glob("msgs.*")):
                try:
                    yield from self._segment(segment)
                except StorageError as fault:
                    if on_damage is None:
                        raise
                    on_damage(fault)

    def _segment(self, path: Path) -> Iterator[FoundMessage]:
        acked = _acked(path)
        waiting = set(acked)
        place = Bytes(path, path.read_bytes())
        count = 0
        if place.content:
            schema = place.number(U32, "the schema")
            if schema != SCHEMA:
                raise damaged(path, 0, f"the schema is {schema}, not {SCHEMA}")
        while not _is_at_end(place):
            at = place.at
            message = _read_message(place)
            count += 1
            if at in waiting:
                waiting.discard(at)
                self.acked_count += 1
            else:
                yield message
        if waiting:
            position = min(waiting)
            file = path.with_name(path.name.replace("msgs.", "acks."))
            raise damaged(
                file, acked.index(position) * U32.size, f"it acknowledges {position}, where no message begins"
            )
        _check_count(path, count)


def _acked(segment: Path) -> list[int]:
    """Positions of messages, in the order in which they were acknowledged; a zero ends them."""
    path = segment.with_name(segment.name.replace("msgs.", "acks."))
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    positions = [position for (position,) in U32.iter_unpack(content[: len(content) // 4 * 4])]
    return positions[: positions.index(0)] if 0 in positions else positions


def _is_at_end(place: Bytes) -> bool:
    """A time of zero ends a file, when nothing but zeros follows."""
    head = place.content[place.at : place.at + 8]
    if head.strip(b"\0"):
        return False
    rest = place.content[place.at :].lstrip(b"\0")
    if rest:
        raise damaged(place.path, place.at, f"there are zeros, and {len(rest)} bytes of something behind them")
    return True


def _check_count(segment: Path, count: int) -> None:
    """A segment that LavinMQ was done with has a file that says how many messages it holds."""
    path = segment.with_name(segment.name.replace("msgs.", "meta."))
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    if len(content) >= U32.size and U32.unpack_from(content)[0] != count:
        said = U32.unpack_from(content)[0]
        raise damaged(segment, segment.stat().st_size, f"it has {count} messages, and {path.name} says {said}")


def _read_message(place: Bytes) -> FoundMessage:
    start = place.at
    time_ms = place.number(I64, "a message")
    if not 0 < time_ms < TIME_MS_MAX:
        raise damaged(place.path, start, f"a message cannot have been stored at {time_ms} ms")
    exchange, key = place.short("an exchange's name"), place.short("a routing key")
    properties = _properties(place)
    at = place.at
    size = place.number(U64, "a body's size")
    if size > place.end - place.at:
        raise damaged(place.path, at, f"a body of {size} bytes is announced, and {place.end - place.at} are left")
    return FoundMessage(time_ms, exchange, key, properties, place.take(size, "a body"))


def _properties(place: Bytes) -> bytes:
    start = place.at
    flags = place.number(U16, "properties")
    if flags & _UNKNOWN:
        raise damaged(place.path, start, f"property flags {flags:#06x} are none")
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


def _size(path: Path) -> int:
    status = path.stat()
    return min(status.st_size, status.st_blocks * 512)


def count_messages(folder: QueueFolder) -> int:
    """How many a queue holds, as far as they can be read: for telling what is left behind."""
    return sum(1 for _ in folder.messages(lambda _: None))
