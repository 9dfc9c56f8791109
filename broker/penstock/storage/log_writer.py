"""Writes a new log in one go, before any broker opens it: segments full of messages, as in `docs/format.md`.

It writes format 2. Only imports use it: after a broker has opened a log, only the engine writes to it. A start reads
these files like its own.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final

import google_crc32c

from penstock.model.errors import Thing, TooLargeError
from penstock.storage.directory import FORMAT
from penstock.storage.jsonfiles import write_all

SEGMENT_BYTES_MAX: Final = 64 * 1024 * 1024
RECORD_BYTES_MAX: Final = 1024 * 1024 * 1024
SHARD_COUNT: Final = b"n"
"""In shard 0 of a vhost with several, the owner of the mark with their number."""
_KIND_MESSAGE: Final = 1
_KIND_MARK: Final = 4
_KIND_EPOCH: Final = 5
_LONG_PROPERTIES: Final = 1
_EXPIRES: Final = 8
_DUE: Final = 16

_SEGMENT_HEADER: Final = Struct("<8sII16sQQQHH")
_HEADER: Final = Struct("<IBBHQI")
_EPOCH: Final = Struct("<QB")
_MARK: Final = Struct("<HHI")
_LEADER_BYTES: Final = 16
_NUMBER: Final = Struct("<Q")
_TIME_BYTES: Final = 6
_QUEUE_BYTES: Final = 5
_SEQUENCE_BYTES: Final = 7
_LENGTHS: Final = Struct("<BBH")
_CRC: Final = Struct("<I")
_HEADER_BYTES: Final = _HEADER.size + _CRC.size


@dataclass(frozen=True, slots=True)
class Times:
    """Times of a message in ms since 1970. It is not delivered before `due`, nor after `expires`."""

    stored: int
    expires: int | None = None
    due: int | None = None


class LogWriter:
    """Writer of a log.

    Invariant: `_position` is that of the next record, `_first` that of the segment's first record.
    """

    def __init__(self, directory: Path, segment_bytes_max: int = SEGMENT_BYTES_MAX, *, shard: int = 0) -> None:
        self._directory = directory
        self._shard = shard
        self._segment_bytes_max = segment_bytes_max
        self._log_id = os.urandom(16)
        # The first one: counted in the upper half, random in the lower.
        self._epoch = 1 << 32 | int.from_bytes(os.urandom(4), "little")
        self._seed = google_crc32c.value(self._log_id + _NUMBER.pack(self._epoch))
        self._number = 0
        self._position = 0
        self._begin_segment()
        self._put(_KIND_EPOCH, 0, 0, _EPOCH.pack(self._epoch, 0) + bytes(_TIME_BYTES + _LEADER_BYTES), b"")

    def append(
        self, target: tuple[int, int], times: Times, names: tuple[bytes, bytes], properties: bytes, body: bytes
    ) -> None:
        """Append a message. Raises TooLargeError.

        `target` is the queue's number and the message's sequence in it; `names` are exchange and routing key.
        """
        (queue, sequence), (exchange, key) = target, names
        is_long = len(properties) > 0xFFFF
        later = ((_EXPIRES, times.expires), (_DUE, times.due))
        flags = sum((flag for flag, time in later if time is not None), _LONG_PROPERTIES if is_long else 0)
        head = b"".join(
            (
                _NUMBER.pack(times.stored)[:_TIME_BYTES],
                _LENGTHS.pack(len(exchange), len(key), 0 if is_long else len(properties)),
                queue.to_bytes(_QUEUE_BYTES, "little"),
                sequence.to_bytes(_SEQUENCE_BYTES, "little"),
                _CRC.pack(len(properties)) if is_long else b"",
                *(_NUMBER.pack(time)[:_TIME_BYTES] for _, time in later if time is not None),
            )
        )
        payload = b"".join((exchange, key, properties, body))
        size = _HEADER_BYTES + len(head) + len(payload)
        if size > RECORD_BYTES_MAX:
            raise TooLargeError(Thing("message", "import"), f"has {size} bytes", size=size, size_max=RECORD_BYTES_MAX)
        if self._position > self._first and len(self._bytes) + size > self._segment_bytes_max:
            self._end_segment()
            self._begin_segment()
        self._put(_KIND_MESSAGE, flags, 1, head, payload)

    def put_mark(self, owner: bytes, key: bytes, value: bytes) -> None:
        """Append a mark: a value that an owner keeps under a key."""
        lengths = _MARK.pack(len(owner), len(key), len(value))
        self._put(_KIND_MARK, 0, 0, b"".join((lengths, owner, key, value)), b"")

    def close(self) -> None:
        """Write the last segment; nothing of it is durable before. Raises OSError."""
        self._end_segment()

    def _put(self, kind: int, flags: int, count: int, head: bytes, payload: bytes) -> None:
        crc = google_crc32c.value(payload) if payload else 0
        size = _HEADER_BYTES + len(head) + len(payload)
        header = _HEADER.pack(size, kind, flags, count, self._position, crc)
        self._bytes += header
        self._bytes += _CRC.pack(google_crc32c.extend(self._seed, header + head))
        self._bytes += head
        self._bytes += payload
        self._position += size

    def _begin_segment(self) -> None:
        self._number += 1
        self._first = self._position
        header = _SEGMENT_HEADER.pack(
            b"PNSTKSEG",
            FORMAT,
            _SEGMENT_HEADER.size + _CRC.size,
            self._log_id,
            int.from_bytes(os.urandom(8), "little"),
            self._first,
            self._epoch,
            self._shard,
            0,
        )
        self._bytes = bytearray(header + _CRC.pack(google_crc32c.value(header)))

    def _end_segment(self) -> None:
        path = self._directory / f"msgs.{self._number:010}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        try:
            write_all(descriptor, self._bytes)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
