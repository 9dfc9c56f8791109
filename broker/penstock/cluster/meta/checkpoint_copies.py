"""Copies of a broker's checkpoint for brokers that lack records which the log does not have any more.

The asking broker fetches parts, each with what the whole has to be, so that neither side keeps a message larger than a
part. A checkpoint that is replaced meanwhile stays readable until it is fetched. Only a whole one with the right length
and checksum counts.
"""

import asyncio
import os
import struct
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, Self

from penstock.cluster.calls import LostCallError, NotCarriedOutError
from penstock.cluster.meta.checkpoint import state_of
from penstock.cluster.meta.state import MetaState
from penstock.kit.logging import logger
from penstock.model.errors import StorageError
from penstock.storage.definitions_proof import Proof

PART_BYTES_MAX: Final = 256 * 1024
CHECKPOINT_BYTES_MAX: Final = 1024 * 1024 * 1024
"""A longer checkpoint is not fetched."""
PINNED_MAX: Final = 4
"""Checkpoints that are kept for those who fetch them."""
RETRY_S: Final = 0.5
"""The time until the brokers are asked again."""
_QUESTION: Final = struct.Struct("<QQ")
_ANSWER: Final = struct.Struct("<QQI")
_log: Final = logger("meta")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the checkpoint at a position; the position 0 says that there is none."""

    position: int
    whole: Proof
    content: bytes


def encode_question(position: int, offset: int) -> bytes:
    """Return the question for a part of the checkpoint at a position, or with 0 of the newest one."""
    return _QUESTION.pack(position, offset)


def decode_question(content: bytes) -> tuple[int, int]:
    """Return the position and the offset. Raises NotCarriedOutError."""
    if len(content) != _QUESTION.size:
        raise NotCarriedOutError("a question for a checkpoint has another length")
    position, offset = _QUESTION.unpack(content)
    return position, offset


def encode_part(part: Part) -> bytes:
    return _ANSWER.pack(part.position, part.whole.length, part.whole.crc) + part.content


def decode_part(content: bytes) -> Part:
    """Return a part. Raises NotCarriedOutError."""
    if len(content) < _ANSWER.size:
        raise NotCarriedOutError("a part of a checkpoint is too short")
    position, length, crc = _ANSWER.unpack_from(content)
    return Part(position, Proof(length, crc), content[_ANSWER.size :])


class Assembly:
    """A checkpoint that is being fetched. Invariant: it has the first bytes of the checkpoint, and no others."""

    def __init__(self, first: Part) -> None:
        """Begin with the first part. Raises NotCarriedOutError."""
        if first.whole.length > CHECKPOINT_BYTES_MAX:
            raise NotCarriedOutError(f"a checkpoint has {first.whole.length} bytes")
        self._first = first
        self._content = bytearray()
        self.take(first)

    @property
    def offset(self) -> int:
        return len(self._content)

    @property
    def is_whole(self) -> bool:
        return self.offset == self._first.whole.length

    def take(self, part: Part) -> None:
        """Take the part at the offset. Raises NotCarriedOutError for one of another checkpoint."""
        is_next = (part.position, part.whole) == (self._first.position, self._first.whole)
        if not is_next or not 0 < len(part.content) <= self._first.whole.length - self.offset:
            raise NotCarriedOutError("a part is not one of the checkpoint that is fetched")
        self._content += part.content

    def state(self) -> MetaState:
        """Return the state of a whole checkpoint. Raises NotCarriedOutError for one that is damaged."""
        content = bytes(self._content)
        if Proof.of(content) != self._first.whole:
            raise NotCarriedOutError("the checksum of a checkpoint is not that of its bytes")
        try:
            state = state_of(content)
        except StorageError as error:
            raise NotCarriedOutError(str(error)) from error
        if state.position != self._first.position:
            raise NotCarriedOutError("a checkpoint has another position")
        return state


Ask = Callable[[int, bytes], Awaitable[bytes]]
"""Asks the broker of a number for a part. Raises NotCarriedOutError and LostCallError."""


class CheckpointFetcher:
    """The port `Checkpoints`: asks the brokers in turn, the leader first."""

    def __init__(self, brokers: Callable[[], Awaitable[Sequence[int]]], ask: Ask, retry_s: float = RETRY_S) -> None:
        self._brokers = brokers
        self._ask = ask
        self._retry_s = retry_s

    async def take(self, position_min: int) -> MetaState:
        while True:
            for broker in await self._brokers():
                try:
                    state = await self._fetch(broker, position_min)
                except (NotCarriedOutError, LostCallError) as error:
                    _log.info("checkpoint not fetched", broker=broker, reason=str(error))
                    continue
                if state is not None:
                    return state
            await asyncio.sleep(self._retry_s)

    async def _fetch(self, broker: int, position_min: int) -> MetaState | None:
        """Return the state of a broker's checkpoint; None if that is below the position."""
        first = decode_part(await self._ask(broker, encode_question(0, 0)))
        if first.position < position_min:
            return None
        assembly = Assembly(first)
        while not assembly.is_whole:
            question = encode_question(first.position, assembly.offset)
            assembly.take(decode_part(await self._ask(broker, question)))
        return await asyncio.to_thread(assembly.state)


class _Pinned:
    """A checkpoint that stays readable when another one takes its name."""

    def __init__(self, descriptor: int, whole: Proof) -> None:
        self.descriptor = descriptor
        self.whole = whole

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the file and read what it is. Raises OSError."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            whole = Proof(0, 0)
            while content := os.pread(descriptor, PART_BYTES_MAX, whole.length):
                whole = whole.extended(content)
        except OSError:
            os.close(descriptor)
            raise
        return cls(descriptor, whole)


class StoredCheckpoint(Protocol):
    """The checkpoint of this broker on its disk, which is replaced by newer ones."""

    @property
    def checkpoint(self) -> int:
        """Its position; 0 without one."""

    @property
    def checkpoint_path(self) -> Path: ...


class CheckpointServer:
    """Answers questions for parts of this broker's checkpoint, until `close`."""

    def __init__(self, files: StoredCheckpoint) -> None:
        self._files = files
        self._pinned: dict[int, _Pinned] = {}

    async def answer(self, question: bytes) -> bytes:
        """Return a part. Raises NotCarriedOutError when it cannot be read, or its checkpoint is not kept any more."""
        position, offset = decode_question(question)
        try:
            position = position or await self._pin()
            pinned = self._pinned.get(position)
            if position and pinned is None:
                raise NotCarriedOutError(f"the checkpoint at {position} is not kept any more")
            if pinned is None:
                return encode_part(Part(0, Proof(0, 0), b""))
            content = await asyncio.to_thread(os.pread, pinned.descriptor, PART_BYTES_MAX, offset)
        except (OSError, OverflowError) as error:
            raise NotCarriedOutError(f"the checkpoint cannot be read: {error}") from error
        return encode_part(Part(position, pinned.whole, content))

    def close(self) -> None:
        while self._pinned:
            self._unpin(next(iter(self._pinned)))

    async def _pin(self) -> int:
        """Keep the newest checkpoint; return its position, or 0 without one."""
        position = self._files.checkpoint
        if not position or position in self._pinned:
            return position
        pinned = await asyncio.to_thread(_Pinned.open, self._files.checkpoint_path)
        if self._files.checkpoint != position or position in self._pinned:
            os.close(pinned.descriptor)
            if position not in self._pinned:
                raise NotCarriedOutError("another checkpoint was written meanwhile")
            return position
        self._pinned[position] = pinned
        while len(self._pinned) > PINNED_MAX:
            self._unpin(min(self._pinned))
        return position

    def _unpin(self, position: int) -> None:
        os.close(self._pinned.pop(position).descriptor)
