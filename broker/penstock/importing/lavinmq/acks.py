"""Acknowledged messages of a segment.

LavinMQ appends their positions to a file in no order. Here they are bits, one for each byte of the segment, so a file
of many positions takes at most an eighth of its segment.
"""

from collections.abc import Container, Iterator
from typing import Final

from penstock.importing.lavinmq.files import CHUNK_BYTES, Folder
from penstock.importing.lavinmq.place import U32, corrupt
from penstock.model.errors import StorageError

FILE_BYTES_MAX: Final = 2**32
MESSAGE_BYTES_MIN: Final = 21


class Acks:
    """Set of acknowledged positions.

    Invariant: a bit is set for each position that was acknowledged and not taken yet.
    """

    def __init__(self, folder: Folder, name: str, segment_bytes: int, files: Container[str]) -> None:
        self._folder = folder
        self._name = name
        self._bits = bytearray()
        self._segment_bytes = segment_bytes
        for count, position in enumerate(self._positions() if name in files else (), 1):
            self._set(position, count)

    def take(self, position: int) -> bool:
        """Return whether the message there was acknowledged; each is asked for once."""
        at, bit = position >> 3, 1 << (position & 7)
        if at >= len(self._bits) or not self._bits[at] & bit:
            return False
        self._bits[at] ^= bit
        return True

    def check_all_taken(self) -> None:
        """Check that no position is left; raise StorageError when no message begins at one."""
        left = self._bits.lstrip(b"\0")
        if not left:
            return
        position = (len(self._bits) - len(left)) * 8 + (left[0] & -left[0]).bit_length() - 1
        index = next(index for index, found in enumerate(self._positions()) if found == position)
        raise self._unfounded(position, index)

    def _set(self, position: int, count: int) -> None:
        if position >= self._segment_bytes or count > self._segment_bytes // MESSAGE_BYTES_MIN:
            raise self._unfounded(position, count - 1)
        at = position >> 3
        if at >= len(self._bits):
            self._bits += bytes(at + 1 - len(self._bits))
        self._bits[at] |= 1 << (position & 7)

    def _positions(self) -> Iterator[int]:
        """Yield positions in the order in which they were acknowledged; a zero ends them."""
        with self._folder.file(self._name, FILE_BYTES_MAX) as file:
            for start in range(0, file.size, CHUNK_BYTES):
                content = file.read_at(start, min(CHUNK_BYTES, file.size - start))
                for (position,) in U32.iter_unpack(content[: len(content) // U32.size * U32.size]):
                    if not position:
                        return
                    yield position

    def _unfounded(self, position: int, index: int) -> StorageError:
        path = self._folder.path / self._name
        return corrupt(path, index * U32.size, f"it acknowledges {position}, which is not the start of a message")
