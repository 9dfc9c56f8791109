"""The definitions file of one vhost: the truth about its durable exchanges, queues and bindings. What `append`
returned from is on the disk; after a failed write or sync nothing is appended any more, because the file's end cannot
be trusted: only a full disk leaves it as it was. A torn last frame was never answered and is cut; any other bad frame
stops the start and drops nothing."""

import asyncio
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from penstock.kit.settings import DEAD_FRAMES_MAX
from penstock.kit.tasks import spawn
from penstock.model.errors import DiskFullError, StorageError, Thing
from penstock.storage.amqp_frames import (
    Change,
    ExchangeDeleted,
    FrameError,
    QueueDeleted,
    Unbound,
    decode,
    encode,
    frame_size,
)
from penstock.storage.definitions_fold import Fold
from penstock.storage.jsonfiles import kind_of, write_all, write_file

_VERSION = struct.Struct("<i")
VERSION = 1
_HEAD = _VERSION.pack(VERSION)
_NEXT_FRAME = b"\xce\x01\0\0"  # the end of one frame and the head of the next

_Waiting = tuple[Sequence[Change], asyncio.Future[None]]


class DefinitionsFile:
    """Open from `open` to `close`. One write at a time: what arrives meanwhile shares the next one and its sync."""

    def __init__(self, path: Path, descriptor: int, frame_count: int, dead_frames_max: int) -> None:
        self.path = path
        self.frame_count = frame_count
        self.deleted_count = 0
        self._descriptor: int | None = descriptor
        self._dead_frames_max = dead_frames_max
        self._waiting: list[_Waiting] = []
        self._writer: asyncio.Task[None] | None = None
        self._failure: str = ""

    @classmethod
    def open(cls, path: Path, dead_frames_max: int = DEAD_FRAMES_MAX) -> "tuple[DefinitionsFile, list[Change]]":
        """Reads the file to its end, or makes an empty one; gives all of its changes. Blocks. Raises StorageError."""
        try:
            if not path.exists():
                write_file(path, _HEAD)
            content = path.read_bytes()
            changes, end = read_changes(path, content)
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            if end < len(content):
                os.ftruncate(descriptor, end)
                os.fsync(descriptor)
        except OSError as error:
            raise _unusable(path, "opened", error) from error
        opened = cls(path, descriptor, len(changes), dead_frames_max)
        opened.deleted_count = sum(_is_deletion(change) for change in changes)
        return opened, changes

    async def append(self, changes: Sequence[Change]) -> None:
        """Returns when the changes are on the disk. Raises DiskFullError, after which the file is as it was and they
        may be tried again; any other StorageError is the end of it."""
        if not changes:
            return
        self._check_open()
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((changes, answered))
        if self._writer is None:
            self._writer = spawn(self._write_waiting(), name=f"definitions {self.path.parent.name}")
        await answered

    def begin_backup(self) -> "DefinitionsCopy":
        """Fixes what a copy holds. To be called while nothing is being appended; a rewrite may be under way, as the
        file before it and the one after it mean the same."""
        self._check_open()
        try:
            return DefinitionsCopy(self.path)
        except OSError as error:
            raise _unusable(self.path, "opened", error) from error

    async def close(self) -> None:
        """Waits for what is being written, then lets go of the file."""
        if self._writer is not None:
            await asyncio.wait([self._writer])
        self._close("it is closed")

    async def _write_waiting(self) -> None:
        try:
            while self._waiting:
                round_, self._waiting = self._waiting, []
                await self._write_round(round_)
        finally:
            self._writer = None
            if self._failure:
                _answer(self._waiting, self._stopped())
                self._waiting = []

    async def _write_round(self, round_: list[_Waiting]) -> None:
        changes = [change for changes, _ in round_ for change in changes]
        failure: StorageError | None = self._stopped()  # also what waits is told when a bug ends this task
        try:
            self._check_open()
            await asyncio.to_thread(self._write, changes)
            failure = None
        except StorageError as error:
            failure = error
        finally:
            if failure is not None and not isinstance(failure, DiskFullError):
                self._close(failure.rule)
            _answer(round_, failure)
        if failure is not None:
            return
        self.frame_count += len(changes)
        self.deleted_count += sum(_is_deletion(change) for change in changes)
        if self._is_mostly_dead():
            await self._collect()

    def _write(self, changes: list[Change]) -> None:
        assert self._descriptor is not None
        try:
            end = os.fstat(self._descriptor).st_size
            self._write_frames(b"".join(map(encode, changes)), end)
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise _unusable(self.path, "written", error) from error

    def _write_frames(self, frames: bytes, end: int) -> None:
        """What was written before the disk was full is taken back: it was never answered."""
        assert self._descriptor is not None
        try:
            write_all(self._descriptor, frames)
        except OSError as error:
            if kind_of(error) is not DiskFullError:
                raise
            os.ftruncate(self._descriptor, end)
            raise DiskFullError(
                Thing("file", str(self.path)), "finds no room on the disk", "consume messages or free space"
            ) from error

    def _is_mostly_dead(self) -> bool:
        """A deletion and what it deletes are both dead."""
        dead_count = 2 * self.deleted_count
        return dead_count > self._dead_frames_max and 2 * dead_count > self.frame_count

    async def _collect(self) -> None:
        """Garbage collection. A full disk puts it off. When it fails otherwise nothing is lost, but which file the
        descriptor means is no longer sure, so nothing more is appended."""
        try:
            self.frame_count = await asyncio.to_thread(self._rewrite)
            self.deleted_count = 0
        except DiskFullError:
            return
        except StorageError as error:
            self._close(error.rule)

    def _rewrite(self) -> int:
        try:
            content = self.path.read_bytes()
            fold = Fold()
            fold.apply_all(read_changes(self.path, content)[0])
            kept = fold.changes()
            write_file(self.path, _HEAD + b"".join(map(encode, kept)))
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise _unusable(self.path, "rewritten", error) from error
        assert self._descriptor is not None
        os.close(self._descriptor)
        self._descriptor = descriptor
        return len(kept)

    def _check_open(self) -> None:
        if self._failure:
            raise self._stopped()

    def _stopped(self) -> StorageError:
        reason = self._failure or "its writer ended by a bug"
        return StorageError(Thing("file", str(self.path)), f"takes no more entries: {reason}", "restart the broker")

    def _close(self, reason: str) -> None:
        self._failure = self._failure or reason
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class DefinitionsCopy:
    """The first bytes of a definitions file, also when it is appended to or replaced meanwhile."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb")
        self._bytes = os.fstat(self._file.fileno()).st_size

    def write(self, path: Path) -> None:
        """Blocks until the copy is on the disk. Raises StorageError."""
        try:
            content = self._file.read(self._bytes)
        except OSError as error:
            raise _unusable(self._path, "read", error) from error
        write_file(path, content)

    def close(self) -> None:
        self._file.close()


def _answer(waiting: Sequence[_Waiting], failure: StorageError | None) -> None:
    for _, answered in waiting:
        if answered.done():  # whoever waited was cancelled
            continue
        if failure is None:
            answered.set_result(None)
        else:
            answered.set_exception(failure)


def read_changes(path: Path, content: bytes) -> tuple[list[Change], int]:
    """All changes, and where the last whole frame ends. Raises StorageError naming the byte of what is wrong."""
    if len(content) < _VERSION.size or _VERSION.unpack_from(content)[0] != VERSION:
        found = _VERSION.unpack_from(content)[0] if len(content) >= _VERSION.size else "none"
        raise _damaged(path, 0, f"its version is {found}, and this broker reads version {VERSION}")
    changes: list[Change] = []
    offset = _VERSION.size
    while offset < len(content):
        try:
            size = frame_size(content, offset)
            if size is None:
                _check_torn(content, offset)
                break
            changes.append(decode(content[offset : offset + size]))
        except FrameError as error:
            if not any(content[offset:]):
                break  # the file had grown, and nothing of the frame had reached the disk
            raise _damaged(path, offset + error.offset, f"{error} (frame at byte {offset})") from error
        offset += size
    return changes, offset


def _check_torn(content: bytes, offset: int) -> None:
    """A frame that reaches past the file's end is torn only when it is the last: with whole frames after its head, its
    size is what is wrong, and cutting here would drop what was answered."""
    at = content.find(_NEXT_FRAME, offset)
    while at >= 0:
        if _begins_whole_frame(content, at + 1):
            raise FrameError("the frame's size reaches past the file's end, but whole frames follow its head", 3)
        at = content.find(_NEXT_FRAME, at + 1)


def _begins_whole_frame(content: bytes, offset: int) -> bool:
    try:
        size = frame_size(content, offset)
        if size is None:
            return False
        decode(content[offset : offset + size])
    except FrameError:
        return False
    return True


def _is_deletion(change: Change) -> bool:
    return isinstance(change, ExchangeDeleted | QueueDeleted | Unbound)


def _damaged(path: Path, offset: int, reason: str) -> StorageError:
    return StorageError(
        Thing("file", str(path)),
        f"is damaged at byte {offset}: {reason}",
        "put a copy in its place, or cut it there if what follows may be lost; nothing was changed",
    )


def _unusable(path: Path, action: str, error: OSError) -> StorageError:
    return StorageError(
        Thing("file", str(path)), f"cannot be {action}: {error.strerror}", "free space or mend the disk, then restart"
    )
