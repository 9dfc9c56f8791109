"""Reads an archive's bytes in their order, from anywhere. They are hostile until the last entry has proven them whole.

One piece is in memory at a time, beside the list.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.model.errors import StorageError, Thing
from penstock.storage.backup_archive import (
    BLOCK,
    PROOF,
    TRAILER_BYTES,
    ArchiveList,
    decoded_list,
    header,
    list_size,
    not_an_archive,
    not_whole,
    padding,
    trailer,
)

PIECE_BYTES: Final = 1 << 20
Read = Callable[[int], bytes]
"""Returns the next bytes, at most so many, and none at the end."""


class UnreadableError(StorageError):
    """The source of an archive failed, so that nothing is known about the archive."""


class ArchiveReader:
    """An archive's bytes in their order. Each is hashed when it is taken; `source` names the archive in errors."""

    def __init__(self, read: Read, source: str) -> None:
        self._read = read
        self._source = source
        self._digest = hashlib.sha256()
        self.bytes = 0
        """How many were taken."""

    @property
    def sha256(self) -> str:
        """The SHA-256 of all bytes that were taken, in hexadecimal."""
        return self._digest.hexdigest()

    def read_list(self) -> ArchiveList:
        """Return the list, which comes first."""
        block = self._up_to(BLOCK)
        if len(block) < BLOCK:
            raise not_an_archive(self._source)
        size = list_size(block, self._source)
        content = self.take(size)
        found = decoded_list(content, self._source)
        self.expect(bytes(padding(size)), "other bytes follow its list")
        return found

    def take(self, count: int) -> bytes:
        """Return exactly so many bytes."""
        found = self._up_to(count)
        if len(found) < count:
            raise not_whole(self._source, "it ends too early")
        return found

    def expect(self, expected: bytes, otherwise: str) -> None:
        if self.take(len(expected)) != expected:
            raise not_whole(self._source, otherwise)

    def end(self, found: ArchiveList) -> None:
        """Check the proof, and that nothing follows it."""
        expected = trailer(self.sha256, found.created_at)
        assert len(expected) == TRAILER_BYTES
        if self.take(TRAILER_BYTES) != expected:
            raise not_whole(self._source, f"its bytes differ from the SHA-256 in {PROOF}")
        if self._next(1):
            raise not_whole(self._source, "other bytes follow its end")

    def _up_to(self, count: int) -> bytes:
        """Return so many bytes, fewer only at the end."""
        parts = []
        while count:
            part = self._next(min(count, PIECE_BYTES))
            if not part:
                break
            self._digest.update(part)
            parts.append(part)
            count -= len(part)
            self.bytes += len(part)
        return b"".join(parts)

    def _next(self, count: int) -> bytes:
        try:
            return self._read(count)
        except OSError as error:
            rule = f"cannot be read: {error.strerror or error}"
            raise UnreadableError(Thing("archive", self._source), rule, "try again; nothing was restored") from error


@dataclass(frozen=True, slots=True)
class StoredArchive:
    """An archive that was read from its first byte to its last, and is whole."""

    bytes: int
    sha256: str
    vhost_count: int
    data_id: str
    version: str


def find_stored(read: Read, source: str, request_id: str) -> StoredArchive | None:
    """Return the archive that a request stored; None for another one, or another file. Nothing is unpacked. Blocks.

    Raises StorageError when it is that request's and is not whole, or cannot be read.
    """
    archived = ArchiveReader(read, source)
    try:
        found = archived.read_list()
    except UnreadableError:
        raise
    except StorageError:
        return None
    if found.request_id != request_id:
        return None
    for file in found.files:
        archived.expect(header(file.name, file.bytes, found.created_at), f"the entry of {file.name} is another")
        left = file.bytes
        while left:
            left -= len(archived.take(min(left, PIECE_BYTES)))
        archived.expect(bytes(padding(file.bytes)), f"other bytes follow {file.name}")
    archived.end(found)
    return StoredArchive(archived.bytes, archived.sha256, len(found.vhosts), found.data_id, found.version)
