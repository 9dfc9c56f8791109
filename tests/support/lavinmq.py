"""Writes LavinMQ's files from their layout alone: definitions, messages, acknowledgements.

It shares no code with the reader under test. All integers are little-endian, except for those inside a field table,
which stay in network order, as they came over the wire.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from struct import pack, unpack_from

HEADERS, DELIVERY_MODE, PRIORITY, CORRELATION_ID, MESSAGE_ID, TIMESTAMP = 0x2000, 0x1000, 0x0800, 0x0400, 0x0080, 0x0040
CONTENT_TYPE, APP_ID = 0x8000, 0x0008
DURABLE, EXCLUSIVE, AUTO_DELETE = 2, 4, 8


def sha1(name: str) -> str:
    return hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()


def short(text: str) -> bytes:
    content = text.encode()
    return bytes((len(content),)) + content


def value(item: object) -> bytes:
    match item:
        case None:
            return b"V"
        case bool():
            return b"t" + bytes((item,))
        case int():
            return b"l" + pack(">q", item)
        case float():
            return b"d" + pack(">d", item)
        case str():
            return long(b"S", item.encode())
        case list():
            return long(b"A", b"".join(map(value, item)))
        case dict():
            return long(b"F", entries(item))
    raise TypeError(type(item).__name__)


def long(tag: bytes, content: bytes) -> bytes:
    return tag + pack(">I", len(content)) + content


def entries(fields: Mapping[str, object]) -> bytes:
    return b"".join(short(name) + value(item) for name, item in fields.items())


def table(fields: Mapping[str, object]) -> bytes:
    """Return a table as stored in a file: only its own length is little-endian."""
    content = entries(fields)
    return pack("<I", len(content)) + content


def frame(class_id: int, method_id: int, arguments: bytes) -> bytes:
    content = pack("<HHH", class_id, method_id, 0) + arguments
    return pack("<BHI", 1, 0, len(content)) + content + b"\xce"


def exchange(name: str, kind: str, arguments: Mapping[str, object] | None = None, bits: int = DURABLE) -> bytes:
    return frame(40, 10, short(name) + short(kind) + bytes((bits,)) + table(arguments or {}))


def queue(name: str, arguments: Mapping[str, object] | None = None, bits: int = DURABLE) -> bytes:
    return frame(50, 10, short(name) + bytes((bits,)) + table(arguments or {}))


def queue_deleted(name: str) -> bytes:
    return frame(50, 40, short(name) + b"\0")


def exchange_deleted(name: str) -> bytes:
    return frame(40, 20, short(name) + b"\0")


def bound(queue_name: str, source: str, key: str, arguments: Mapping[str, object] | None = None) -> bytes:
    return frame(50, 20, short(queue_name) + short(source) + short(key) + b"\0" + table(arguments or {}))


def exchange_bound(name: str, source: str, key: str) -> bytes:
    return frame(40, 30, short(name) + short(source) + short(key) + b"\0" + table({}))


def message(
    time_ms: int, source: str, key: str, body: bytes, properties: bytes = pack("<HB", DELIVERY_MODE, 2)
) -> bytes:
    return pack("<q", time_ms) + short(source) + short(key) + properties + pack("<Q", len(body)) + body


def all_properties(headers: Mapping[str, object], number: int) -> bytes:
    """Return properties of every kind: texts, a table, octets, a time."""
    flags = CONTENT_TYPE | HEADERS | DELIVERY_MODE | PRIORITY | CORRELATION_ID | MESSAGE_ID | TIMESTAMP | APP_ID
    parts = (pack("<H", flags), short("text/plain"), table(headers), b"\x02\x05", short(f"c-{number}"))
    return b"".join((*parts, short(f"m-{number}"), pack("<q", 1_700_000_000 + number), short("shop")))


def with_times_moved(segment: bytes, by_ms: int) -> bytes:
    """Return a segment whose messages were stored so much later. What follows the last one stays."""
    moved, at = bytearray(segment), 4
    while at + 8 <= len(segment) and (time := unpack_from("<q", segment, at)[0]):
        moved[at : at + 8] = pack("<q", time + by_ms)
        at += 8
        at += 1 + segment[at]
        at += 1 + segment[at]
        at = _behind_properties(segment, at)
        at += 8 + unpack_from("<Q", segment, at)[0]
    return bytes(moved)


def _behind_properties(segment: bytes, at: int) -> int:
    """Return where a message's properties end: those of a flag each, from the highest down."""
    flags = unpack_from("<H", segment, at)[0]
    at += 2
    for flag in (1 << bit for bit in range(15, 1, -1)):
        if not flags & flag:
            continue
        if flag == HEADERS:
            at += 4 + unpack_from("<I", segment, at)[0]
        elif flag in (DELIVERY_MODE, PRIORITY):
            at += 1
        elif flag == TIMESTAMP:
            at += 8
        else:
            at += 1 + segment[at]
    return at


class LavinVhost:
    """One vhost's folder. Queues are written with segments of at most `segment_bytes`."""

    def __init__(self, directory: Path, name: str, segment_bytes: int = 64 * 1024) -> None:
        self.path = directory / sha1(name)
        self.path.mkdir(parents=True)
        (self.path / ".vhost").write_text(name)
        self._segment_bytes = segment_bytes

    def write_definitions(self, *frames: bytes) -> None:
        (self.path / "definitions.amqp").write_bytes(pack("<i", 1) + b"".join(frames))

    def write_json(self, name: str, content: object) -> None:
        (self.path / f"{name}.json").write_text(json.dumps(content))

    def write_queue(self, name: str, messages: Iterable[bytes], acked: frozenset[int] = frozenset()) -> Path:
        """Write a queue; `acked` are indexes of messages.

        Closed segments are truncated and counted; the last has unused space.
        """
        folder = self.path / sha1(name)
        folder.mkdir()
        (folder / ".queue").write_text(name)
        number, count, content, acks = 1, 0, pack("<i", 4), b""
        for place, stored in enumerate(messages):
            if len(content) + len(stored) > self._segment_bytes:
                _write_segment(folder, number, content, acks)
                (folder / f"meta.{number:010}").write_bytes(pack("<I", count))
                number, count, content, acks = number + 1, 0, pack("<i", 4), b""
            if place in acked:
                acks += pack("<I", len(content))
            content += stored
            count += 1
        _write_segment(folder, number, content + bytes(1_000), acks + bytes(64))
        return folder


def _write_segment(folder: Path, number: int, content: bytes, acks: bytes) -> None:
    (folder / f"msgs.{number:010}").write_bytes(content)
    if acks.strip(b"\0"):
        (folder / f"acks.{number:010}").write_bytes(acks)


def write_directory(directory: Path, users: object, vhosts: Iterable[str]) -> None:
    """Write the files above the vhosts."""
    (directory / "schema_version").write_text("4")
    (directory / ".lock").write_bytes(b"")
    (directory / "users.json").write_text(json.dumps(users))
    (directory / "vhosts.json").write_text(json.dumps([{"name": name, "dir": sha1(name)} for name in vhosts]))
