"""The definitions file of one vhost: the truth about its durable exchanges, queues and bindings.

When `append` returns, the changes are on the disk and proven by `definitions.crc`. A failed write or sync is truncated
again, and the file takes more; when that fails, too, nothing is appended any more, because the file's end cannot be
trusted. A torn last frame behind the proven part was never answered and is truncated. Any other difference from what
was written stops the start and drops nothing: a start deletes the queues that this file does not name.
"""

import asyncio
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from penstock.kit.settings import DEAD_FRAMES_MAX
from penstock.kit.tasks import spawn
from penstock.model.errors import DiskFullError, FileClosedError, NotWrittenError, StorageError, Thing
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
from penstock.storage.definitions_proof import (
    PROOF,
    PROOF_BYTES,
    Proof,
    ProofFile,
    proof_content,
    read_proofs,
    write_proof,
)
from penstock.storage.jsonfiles import kind_of, write_all, write_file

_VERSION = struct.Struct("<i")
VERSION = 1
_HEAD = _VERSION.pack(VERSION)
_WAY_OUT = "restore a copy, or see what `penstock definitions repair` keeps; nothing was changed"
_NEXT_FRAME = b"\xce\x01\0\0"  # the end of one frame and the head of the next

_Waiting = tuple[Sequence[Change], asyncio.Future[None]]


class DefinitionsFile:
    """A definitions file, open from `open` to `close`.

    One write at a time: changes that arrive meanwhile share the next write and its sync.
    """

    def __init__(
        self, path: Path, descriptor: int, proof: ProofFile, dead_frames_max: int, *, collects: bool = True
    ) -> None:
        self.path = path
        self.frame_count = 0
        self.deleted_count = 0
        self._proof = proof
        self._descriptor: int | None = descriptor
        self._dead_frames_max = dead_frames_max
        self._collects = collects
        self._waiting: list[_Waiting] = []
        self._writer: asyncio.Task[None] | None = None
        self._failure: str = ""

    @classmethod
    def open(
        cls, path: Path, dead_frames_max: int = DEAD_FRAMES_MAX, *, is_proven: bool = False, collects: bool = True
    ) -> "tuple[DefinitionsFile, list[Change]]":
        """Read the file to its end, and return all of its changes.

        `is_proven` says that it has a proof: it is refused without, where one of an earlier version gets it now.
        `collects`: it is rewritten without another call when most of it is dead. Blocks. Raises StorageError.
        """
        try:
            content = path.read_bytes()
            changes, end = read_changes(path, content)
            proof = _proof_of(path, content[:end], is_proven)
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            if end < len(content):
                os.ftruncate(descriptor, end)
            found = Proof.of(content[:end])
            if proof is None or proof.proofs != (found,):
                os.fsync(descriptor)  # the kernel may hold bytes that no broker has synced
                proof = _proven(path, proof, found)
        except FileNotFoundError as error:
            raise _missing(path) from error
        except OSError as error:
            raise _unusable(path, "opened", error) from error
        opened = cls(path, descriptor, proof, dead_frames_max, collects=collects)
        opened.frame_count = len(changes)
        opened.deleted_count = sum(_is_deletion(change) for change in changes)
        return opened, changes

    async def append(self, changes: Sequence[Change]) -> None:
        """Return when the changes are on the disk.

        Raises DiskFullError or NotWrittenError when the file is as it was and takes more, FileClosedError when it takes
        no more, and another StorageError when a start may find the changes; the file takes no more then.
        """
        if not changes:
            return
        self._check_open()
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((changes, answered))
        if self._writer is None:
            self._writer = spawn(self._write_waiting(), name=f"definitions {self.path.parent.name}")
        await answered

    def begin_backup(self) -> "DefinitionsCopy":
        """Fix the content of a copy.

        Call it while nothing is being appended. A rewrite may be under way, as the files before and after it mean the
        same.
        """
        self._check_open()
        try:
            before = self._proof.proofs
            copy = DefinitionsCopy(self.path)
            copy.proofs = {*before, *self._proof.proofs}
            return copy
        except OSError as error:
            raise _unusable(self.path, "opened", error) from error

    async def close(self) -> None:
        """Wait for the write under way, then close the file."""
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
        failure: StorageError | None = self._ended_by_a_bug()
        try:
            self._check_open()
            await asyncio.to_thread(self._write, changes)
            failure = None
        except StorageError as error:
            failure = error
        finally:
            if failure is not None and not isinstance(failure, DiskFullError | NotWrittenError):
                self._close(failure.rule)
            _answer(round_, failure)
        if failure is not None:
            return
        self.frame_count += len(changes)
        self.deleted_count += sum(_is_deletion(change) for change in changes)
        if self._collects and self.is_mostly_dead:
            await self.collect()

    def _write(self, changes: list[Change]) -> None:
        assert self._descriptor is not None
        frames = b"".join(map(encode, changes))
        try:
            end = os.fstat(self._descriptor).st_size
            self._write_frames(frames, end)
            self._proof.put(self._proof.proofs[-1].extended(frames))
        except OSError as error:
            raise _unusable(self.path, "written", error) from error

    def _write_frames(self, frames: bytes, end: int) -> None:
        """Truncate what was written before an error: no proof covers it yet, and no command was answered.

        Raises OSError when that fails, too.
        """
        assert self._descriptor is not None
        try:
            write_all(self._descriptor, frames)
        except OSError as error:
            if kind_of(error) is not DiskFullError:
                raise self._taken_back(end, error) from error
            os.ftruncate(self._descriptor, end)
            raise DiskFullError(
                Thing("file", str(self.path)), "has no space on the disk", "consume messages or free space"
            ) from error
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise self._taken_back(end, error) from error

    def _taken_back(self, end: int, error: OSError) -> StorageError:
        assert self._descriptor is not None
        os.ftruncate(self._descriptor, end)
        os.fsync(self._descriptor)
        rule = f"cannot be written: {error.strerror}"
        return NotWrittenError(Thing("file", str(self.path)), rule, "free space or repair the disk, then try again")

    @property
    def proof(self) -> Proof:
        """The length and the checksum of the file. Nothing is being appended or collected."""
        return self._proof.proofs[-1]

    @property
    def is_mostly_dead(self) -> bool:
        """Return whether most frames are dead. A deletion and the frames that it deletes are all dead."""
        dead_count = 2 * self.deleted_count
        return dead_count > self._dead_frames_max and 2 * dead_count > self.frame_count

    async def collect(self) -> None:
        """Collect garbage, while nothing is being appended. A full disk postpones it.

        After another failure nothing is lost, but it is uncertain which file the descriptor refers to, so nothing more
        is appended.
        """
        try:
            self.frame_count = await asyncio.to_thread(self._rewrite)
            self.deleted_count = 0
        except DiskFullError as error:
            if not self._is_in_place():  # only the sync of the new name was refused
                self._close(error.rule)
        except StorageError as error:
            self._close(error.rule)

    def _is_in_place(self) -> bool:
        assert self._descriptor is not None
        return os.path.samestat(self.path.stat(), os.fstat(self._descriptor))

    def _rewrite(self) -> int:
        try:
            content = self.path.read_bytes()
            old = self._proof.proofs[-1]
            if Proof.of(content) != old:
                raise _changed(self.path, content, (old,))
            fold = Fold()
            fold.apply_all(read_changes(self.path, content)[0])
            kept = fold.changes()
            rewritten = _HEAD + b"".join(map(encode, kept))
            self._replace(rewritten, old)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise _unusable(self.path, "rewritten", error) from error
        assert self._descriptor is not None
        os.close(self._descriptor)
        self._descriptor = descriptor
        return len(kept)

    def _replace(self, content: bytes, old: Proof) -> None:
        """Replace the file: at every instant the newest slot holds a proof of the existing file."""
        new = Proof.of(content)
        self._proof.put(new, old)  # the last one is that of the file until it is replaced
        write_file(self.path, content)
        self._proof.put(new)

    def _check_open(self) -> None:
        if self._failure:
            raise self._stopped()

    def _stopped(self) -> StorageError:
        rule = f"takes no more entries: {self._failure}"
        return FileClosedError(Thing("file", str(self.path)), rule, "restart the broker")

    def _ended_by_a_bug(self) -> StorageError:
        rule = "takes no more entries: its writer failed"
        return StorageError(Thing("file", str(self.path)), rule, "restart the broker")

    def _close(self, reason: str) -> None:
        self._failure = self._failure or reason
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            self._proof.close()


class DefinitionsCopy:
    """The first bytes of a definitions file, even when it is appended to or replaced meanwhile."""

    def __init__(self, path: Path) -> None:
        self.proofs: set[Proof] = set()
        """One of them must hold for all of these bytes."""
        self._path = path
        self._file = path.open("rb")
        self._bytes = os.fstat(self._file.fileno()).st_size

    @property
    def sizes(self) -> tuple[int, int]:
        """The bytes of the copy and of its proof."""
        return self._bytes, PROOF_BYTES

    def write(self, path: Path) -> None:
        """Write the copy and its proof. Blocks until both are on the disk. Raises StorageError."""
        content, proof = self._proven()
        write_file(path, content)
        write_proof(proof_path(path), proof)

    def read(self) -> tuple[bytes, bytes]:
        """Return the copy and its proof. Blocks. Raises StorageError."""
        content, proof = self._proven()
        return content, proof_content(proof)

    def _proven(self) -> tuple[bytes, Proof]:
        try:
            content = self._file.read(self._bytes)
        except OSError as error:
            raise _unusable(self._path, "read", error) from error
        proof = Proof.of(content)
        if proof not in self.proofs:
            raise _changed(self._path, content, tuple(self.proofs))
        return content, proof

    def close(self) -> None:
        self._file.close()


class NewDefinitions:
    """A definitions file that is not on any disk yet, as a copy for a backup."""

    def __init__(self, changes: Iterable[Change]) -> None:
        self._content = _HEAD + b"".join(map(encode, changes))

    @property
    def sizes(self) -> tuple[int, int]:
        """The bytes of the file and of its proof."""
        return len(self._content), PROOF_BYTES

    def write(self, path: Path) -> None:
        """Write the file and its proof, replacing any old one. Blocks until both are on the disk.

        Raises StorageError.
        """
        write_file(path, self._content)
        write_proof(proof_path(path), Proof.of(self._content))

    def read(self) -> tuple[bytes, bytes]:
        """Return the content of the file and of its proof."""
        return self._content, proof_content(Proof.of(self._content))

    def close(self) -> None:
        """Do nothing: no file is open."""


def create_definitions(path: Path, changes: Iterable[Change] = ()) -> None:
    """Write a new file with its proof, replacing any old one. Blocks. Raises StorageError."""
    NewDefinitions(changes).write(path)


def truncate_definitions(path: Path, proof: Proof) -> None:
    """Truncate a file that is not open to what a proof says. Blocks. Raises StorageError if it began otherwise."""
    try:
        content = path.read_bytes()
        _check_proven(path, content, (proof,))
        # First the proof: a file that is longer than it is whole, too.
        write_proof(proof_path(path), proof)
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(descriptor, proof.length)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except FileNotFoundError as error:
        raise _missing(path) from error
    except OSError as error:
        raise _unusable(path, "truncated", error) from error


def proof_path(path: Path) -> Path:
    """Return the path of a definitions file's proof."""
    return path.with_name(PROOF)


def _proof_of(path: Path, content: bytes, is_proven: bool) -> ProofFile | None:
    """Return the proof; None for a file of an earlier version, which has none.

    Raises StorageError unless the content is whole.
    """
    try:
        proof = ProofFile.open(proof_path(path))
    except FileNotFoundError:
        if is_proven:
            raise _missing(proof_path(path)) from None
        return None
    try:
        _check_proven(path, content, proof.proofs)
    except StorageError:
        proof.close()
        raise
    return proof


def _check_proven(path: Path, content: bytes, proofs: tuple[Proof, ...]) -> None:
    if not any(one.holds_for(content) for one in proofs):
        raise _changed(path, content, proofs)


def _proven(path: Path, proof: ProofFile | None, found: Proof) -> ProofFile:
    if proof is None:
        return ProofFile.create(proof_path(path), found)
    proof.put(found)
    return proof


def _answer(waiting: Sequence[_Waiting], failure: StorageError | None) -> None:
    for _, answered in waiting:
        if answered.done():  # its caller was cancelled
            continue
        if failure is None:
            answered.set_result(None)
        else:
            answered.set_exception(failure)


def read_changes(path: Path, content: bytes) -> tuple[list[Change], int]:
    """Return all changes, and where the last whole frame ends. Raises StorageError naming the byte of an error."""
    _check_version(path, content)
    changes: list[Change] = []
    return changes, _read_frames(path, content, changes)


def verify_definitions(path: Path, *, is_proven: bool) -> None:
    """Run the checks of a start and change nothing: a torn end stays. Raises StorageError."""
    try:
        content = path.read_bytes()
        _, end = read_changes(path, content)
        proofs = read_proofs(proof_path(path)) if is_proven or proof_path(path).exists() else ()
    except FileNotFoundError as error:
        raise _missing(path if not path.exists() else proof_path(path)) from error
    except OSError as error:
        raise _unusable(path, "read", error) from error
    if proofs:
        _check_proven(path, content[:end], proofs)


def readable_changes(path: Path, content: bytes) -> tuple[list[Change], StorageError | None]:
    """Return the changes before the first frame that cannot be read, and the error of that one."""
    changes: list[Change] = []
    try:
        _check_version(path, content)
        _read_frames(path, content, changes)
    except StorageError as error:
        return changes, error
    return changes, None


def _check_version(path: Path, content: bytes) -> None:
    if len(content) < _VERSION.size or _VERSION.unpack_from(content)[0] != VERSION:
        found = _VERSION.unpack_from(content)[0] if len(content) >= _VERSION.size else "none"
        raise _corrupt(path, 0, f"its version is {found}, and this broker reads version {VERSION}")


def _read_frames(path: Path, content: bytes, changes: list[Change]) -> int:
    """Add to the changes, and return where the last whole frame ends."""
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
            raise _corrupt(path, offset + error.offset, f"{error} (frame at byte {offset})") from error
        offset += size
    return offset


def _check_torn(content: bytes, offset: int) -> None:
    """Check that a frame that reaches past the file's end is the last.

    With whole frames after its head its size is wrong, and truncating here would drop changes that were answered.
    """
    at = content.find(_NEXT_FRAME, offset)
    while at >= 0:
        if _begins_whole_frame(content, at + 1):
            raise FrameError(
                "the frame's size extends beyond the end of the file, but complete frames follow its head", 3
            )
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


def _missing(path: Path) -> StorageError:
    return StorageError(Thing("file", str(path)), "is missing, and a start without it would delete queues", _WAY_OUT)


def _changed(path: Path, content: bytes, proofs: tuple[Proof, ...]) -> StorageError:
    """Return the error of a file whose frames can be read but that is not as it was written."""
    length = max(proof.length for proof in proofs)
    if len(content) < length:
        rule = f"is corrupt at byte {len(content)}: it ends there, but {length} bytes were written"
    else:
        rule = f"is corrupt before byte {length}: its checksum differs from {PROOF}"
    return StorageError(Thing("file", str(path)), rule, _WAY_OUT)


def _corrupt(path: Path, offset: int, reason: str) -> StorageError:
    return StorageError(
        Thing("file", str(path)),
        f"is corrupt at byte {offset}: {reason}",
        _WAY_OUT,
    )


def _unusable(path: Path, action: str, error: OSError) -> StorageError:
    return StorageError(
        Thing("file", str(path)), f"cannot be {action}: {error.strerror}", "free space or repair the disk, then restart"
    )
