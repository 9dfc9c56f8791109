"""A backup as one stream of bytes, made while it is read; see `backup_archive` for its format.

Nothing is written on the broker's disk. Every file has the length that it had when the stream was opened, or the stream
fails with an error that names it. A vhost's files are released when the stream has passed them.
"""

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from penstock.model.errors import StorageError, Thing
from penstock.storage.backup import OpenLog, UsersCopy, VhostCopy, users_files
from penstock.storage.backup_archive import (
    ArchivedFile,
    ArchiveList,
    check_restorable,
    header,
    is_archivable,
    padding,
    trailer,
)
from penstock.storage.cluster_json import META
from penstock.storage.definitions_proof import PROOF
from penstock.storage.directory import DataDirectory, directory_name

PIECE_BYTES: Final = 1 << 20
_DEFINITIONS: Final = "definitions.amqp"


@dataclass(frozen=True, slots=True)
class _OpenVhost:
    copy: VhostCopy
    log: OpenLog
    small: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class _Opened:
    """All that is in the archive, in its order: files of no vhost, the log of a cluster's metadata, and the vhosts."""

    small: dict[str, bytes]
    metadata: OpenLog | None
    vhosts: Sequence[_OpenVhost]


class BackupStream:
    """The archive, from its first byte to its last. Any thread may read it, one at a time."""

    def __init__(self, archive: ArchiveList, pieces: Iterator[bytes], opened: ExitStack) -> None:
        self.data_id, self.vhost_count = archive.data_id, len(archive.vhosts)
        self.total_bytes = archive.total_bytes()
        self.sha256 = ""
        """Of all bytes, once `read` has returned the last one."""
        self._time = archive.created_at
        self._pieces = self._proven(pieces)
        self._rest = b""
        self._opened = opened
        self._lock = threading.Lock()

    def read(self, length: int) -> bytes:
        """Return the next bytes; fewer than `length` only at the end. Blocks. Raises StorageError."""
        with self._lock:
            parts, count = [self._rest], len(self._rest)
            while count < length:
                piece = next(self._pieces, None)
                if piece is None:
                    break
                parts.append(piece)
                count += len(piece)
            found = b"".join(parts)
            self._rest = found[length:]
            return found[:length]

    def close(self) -> None:
        """Release all files. Blocks until a read has ended."""
        with self._lock:
            self._opened.close()

    def _proven(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
            yield piece
        last = trailer(digest.hexdigest(), self._time)
        digest.update(last)
        yield last
        self.sha256 = digest.hexdigest()


def open_backup_stream(
    data: DataDirectory,
    vhosts: Sequence[VhostCopy],
    users: UsersCopy,
    origin: tuple[str, int],
    passed: Callable[[VhostCopy], None] = lambda _: None,
    request_id: str = "",
) -> BackupStream:
    """Open the files of fixed vhosts. Blocks. Raises StorageError.

    `origin` is the broker's version and the time in seconds since 1970. `passed` is called on the reading thread when
    a vhost is in the stream. The archive names `request_id`, if there is one.
    """
    opened = ExitStack()
    try:
        held = [_opened(data, vhost, opened) for vhost in vhosts]
        small = users_files(users, [vhost.name for vhost in vhosts])
        files = [ArchivedFile(name, len(content), len(content)) for name, content in small.items()]
        metadata = None if users.metadata is None else users.metadata.log.open()
        if metadata is not None:
            opened.callback(metadata.close)
            files.extend(ArchivedFile(f"{META}/{file.path}", file.bytes, file.size) for file in metadata.files)
        files.extend(file for vhost in held for file in _files(vhost))
        version, time = origin
        names = tuple(vhost.name for vhost in vhosts)
        archive = ArchiveList(data.format, version, data.data_id, time, names, tuple(files), request_id)
        check_restorable(archive)
        return BackupStream(archive, _pieces(archive, _Opened(small, metadata, held), passed), opened)
    except BaseException:
        opened.close()
        raise


def _opened(data: DataDirectory, vhost: VhostCopy, opened: ExitStack) -> _OpenVhost:
    log = vhost.log.open()
    opened.callback(log.close)
    source = data.vhost_directory(vhost.name)
    # A restore refuses names that no broker gives, such as that of a copy made by hand.
    files = (path for path in source.glob("*.json") if is_archivable(f"{source.name}/{path.name}") and path.is_file())
    try:
        small = {path.name: path.read_bytes() for path in sorted((source / ".vhost", *files))}
    except OSError as error:
        raise StorageError(
            Thing("file", str(error.filename)), f"cannot be read: {error.strerror}", "repair the disk, then retry"
        ) from error
    return _OpenVhost(vhost, log, small)


def _files(vhost: _OpenVhost) -> Iterator[ArchivedFile]:
    """Yield a vhost's files in the order in which they are in the archive."""
    folder = directory_name(vhost.copy.name)
    for name, content in vhost.small.items():
        yield ArchivedFile(f"{folder}/{name}", len(content), len(content))
    for name, size in zip((_DEFINITIONS, PROOF), vhost.copy.definitions.sizes, strict=True):
        yield ArchivedFile(f"{folder}/{name}", size, size)
    for file in vhost.log.files:
        yield ArchivedFile(f"{folder}/{file.path}", file.bytes, file.size)


def _pieces(archive: ArchiveList, opened: _Opened, passed: Callable[[VhostCopy], None]) -> Iterator[bytes]:
    yield archive.encoded()
    files = iter(archive.files)
    for content in opened.small.values():
        yield _entry(next(files), content, archive.created_at)
    if opened.metadata is not None:
        for index, _ in enumerate(opened.metadata.files):
            yield from _log_file(next(files), opened.metadata, index, archive.created_at)
        opened.metadata.close()
    for vhost in opened.vhosts:
        for content in (*vhost.small.values(), *vhost.copy.definitions.read()):
            yield _entry(next(files), content, archive.created_at)
        for index, _ in enumerate(vhost.log.files):
            yield from _log_file(next(files), vhost.log, index, archive.created_at)
        vhost.log.close()
        passed(vhost.copy)


def _entry(file: ArchivedFile, content: bytes, time: int) -> bytes:
    assert len(content) == file.bytes, f"{file.name} has another size"
    return header(file.name, file.bytes, time) + content + bytes(padding(file.bytes))


def _log_file(file: ArchivedFile, log: OpenLog, index: int, time: int) -> Iterator[bytes]:
    yield header(file.name, file.bytes, time)
    at = 0
    while at < file.bytes:
        piece = log.read(index, at, PIECE_BYTES)
        yield piece
        at += len(piece)
    if padding(file.bytes):
        yield bytes(padding(file.bytes))
