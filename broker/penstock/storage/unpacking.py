"""Makes a data directory of an archive, which comes as a stream from anywhere.

The bytes are hostile until the last entry has proven them whole, and their list is hostile even then: only what
`backup_archive` expects is accepted, byte for byte, and files are made in a new folder that becomes the data directory
when everything was checked. One piece is in memory at a time, beside the list.
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.model.errors import StorageError, Thing
from penstock.storage.backup_archive import (
    BLOCK,
    PROOF,
    TRAILER_BYTES,
    ArchivedFile,
    ArchiveList,
    decoded_list,
    header,
    list_size,
    not_an_archive,
    not_whole,
    padding,
    trailer,
)
from penstock.storage.directory import VHOSTS, directory_name
from penstock.storage.jsonfiles import write_all
from penstock.storage.records_json import read_vhosts
from penstock.storage.restored import complete_restored, restored_directory

PIECE_BYTES: Final = 1 << 20
Read = Callable[[int], bytes]
"""Returns the next bytes, at most so many, and none at the end."""


def is_archive(first: bytes) -> bool:
    """Return whether a file that begins with these bytes, of one block, is an archive of a backup."""
    try:
        return list_size(first, "") > 0
    except StorageError:
        return False


def restore_archive(read: Read, source: str, target: Path) -> list[str]:
    """Make a data directory of an archive, and return the names of its vhosts.

    `source` names the archive in errors. Blocks. Raises StorageError when the archive is not whole or not a backup's,
    and PreconditionFailedError when the new directory holds something.
    """
    archived = _Archived(read, source)
    found = archived.read_list()
    with restored_directory(target) as folder:
        _check_space(folder, found)
        for file in found.files:
            archived.expect(header(file.name, file.bytes, found.created_at), f"the entry of {file.name} is another")
            _unpack(archived, file, folder / file.name)
            archived.expect(bytes(padding(file.bytes)), f"other bytes follow {file.name}")
        archived.end(found)
        names = _checked_vhosts(folder, found, source)
        complete_restored(folder, names)
    return names


class _Archived:
    """An archive's bytes in their order. Each is hashed when it is taken."""

    def __init__(self, read: Read, source: str) -> None:
        self._read = read
        self._source = source
        self._digest = hashlib.sha256()

    def read_list(self) -> ArchiveList:
        """Return the list, which comes first."""
        block = self._first_block()
        size = list_size(block, self._source)
        content = self.take(size)
        found = decoded_list(content, self._source)
        self.expect(bytes(padding(size)), "other bytes follow its list")
        return found

    def take(self, count: int) -> bytes:
        """Return exactly so many bytes."""
        parts = []
        while count:
            part = self._next(min(count, PIECE_BYTES))
            if not part:
                raise not_whole(self._source, "it ends too early")
            self._digest.update(part)
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def expect(self, expected: bytes, otherwise: str) -> None:
        if self.take(len(expected)) != expected:
            raise not_whole(self._source, otherwise)

    def end(self, found: ArchiveList) -> None:
        """Check the proof, and that nothing follows it."""
        expected = trailer(self._digest.hexdigest(), found.created_at)
        assert len(expected) == TRAILER_BYTES
        if self.take(TRAILER_BYTES) != expected:
            raise not_whole(self._source, f"its bytes differ from the SHA-256 in {PROOF}")
        if self._next(1):
            raise not_whole(self._source, "other bytes follow its end")

    def _next(self, count: int) -> bytes:
        try:
            return self._read(count)
        except OSError as error:
            rule = f"cannot be read: {error.strerror or error}"
            raise StorageError(Thing("archive", self._source), rule, "try again; nothing was restored") from error

    def _first_block(self) -> bytes:
        try:
            return self.take(BLOCK)
        except StorageError as error:
            raise not_an_archive(self._source) from error


def _unpack(archived: _Archived, file: ArchivedFile, path: Path) -> None:
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            left = file.bytes
            while left:
                piece = archived.take(min(left, PIECE_BYTES))
                write_all(descriptor, piece)
                left -= len(piece)
            os.ftruncate(descriptor, file.size)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.filename is None:  # of a write
            error.filename = str(path)
        raise


def _check_space(folder: Path, found: ArchiveList) -> None:
    needed, free = sum(file.bytes for file in found.files), shutil.disk_usage(folder).free
    if needed > free:
        raise StorageError(
            Thing("directory", str(folder.parent)),
            f"is on a disk with {free:,} free bytes, and the archive needs {needed:,}",
            "free space, or name another directory",
        )


def _checked_vhosts(folder: Path, found: ArchiveList, source: str) -> list[str]:
    """Return the names of the vhosts, which the list, `vhosts.json` and the folders must agree on."""
    try:
        names = read_vhosts(folder / VHOSTS)
    except StorageError as error:  # it names a file in a folder that is removed
        raise not_whole(source, f"its {VHOSTS} {error.rule}") from error
    folders = {path.name for path in folder.iterdir() if path.is_dir()}
    if names is None or tuple(names) != found.vhosts or folders != {directory_name(name) for name in names}:
        raise not_whole(source, "its list, its vhosts.json and its files are of different virtual hosts")
    return names
