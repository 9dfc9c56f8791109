"""A backup that a client downloads, part by part.

While it lasts, the files that it names stay on the disk and logs are not compacted. So it ends with the connection that
began it, after the last part, with the first error, when no part was asked for a while, and after a day. Only one part
is made at a time.
"""

import asyncio
import functools
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, Protocol, TypeVar

from penstock.kit.logging import logger
from penstock.kit.tasks import spawn
from penstock.model.errors import NotFoundError, PreconditionFailedError, Thing
from penstock.model.names import ConnectionId
from penstock.services.ports import BackupPart

PART_BYTES: Final = 1 << 20
IDLE_SECONDS: Final = 300.0
"""So long a backup waits for the client to ask for the next part: it may store large pieces of what it got first."""
SECONDS_MAX: Final = 86_400.0
"""No backup lasts longer, however slowly it is read."""

_log = logger("node")
Result = TypeVar("Result")


class Stream(Protocol):
    """The archive. `sha256` is empty until all of it was read."""

    sha256: str
    total_bytes: int

    def read(self, length: int) -> bytes: ...
    def close(self) -> None: ...


class Download:
    """One backup; `kept` is closed when it ends."""

    def __init__(
        self, owner: str, connection: ConnectionId, stream: Stream, kept: ExitStack, idle_seconds: float
    ) -> None:
        self.id = secrets.token_hex(16)
        self.owner = owner
        self._connection = connection
        self._stream = stream
        self._kept = kept
        self._idle_seconds = idle_seconds
        self._offset = 0
        self._turn = asyncio.Lock()
        """Of the one read, and of the release after it."""
        self._release: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self._end = loop.call_later(SECONDS_MAX, self._expire, "it lasted too long")
        self._idle = loop.call_later(idle_seconds, self._expire, "no part was asked for")

    async def read(self, offset: int) -> BackupPart:
        """Return the next part; the last one ends the backup. Raises refusals, and StorageError, which ends it."""
        thing = Thing("backup", self.id)
        if self._turn.locked() or self._release is not None:
            raise PreconditionFailedError(thing, "makes another part just now", "ask for one part at a time")
        if offset != self._offset:
            raise PreconditionFailedError(
                thing, f"continues at byte {self._offset}, not at {offset}", "ask for the parts in their order"
            )
        self._idle.cancel()
        try:
            async with self._turn:
                content = await finished(functools.partial(self._stream.read, PART_BYTES))
        except BaseException:
            self._begin_release()
            raise
        self._offset += len(content)
        if self._stream.sha256:
            _log.info("backup downloaded", user=self.owner, bytes=self._offset)
            await self.end()
            return BackupPart(content, is_last=True, sha256=self._stream.sha256)
        if self._release is not None:
            raise NotFoundError(thing, "begin another one: its connection has ended")
        self._idle = asyncio.get_running_loop().call_later(self._idle_seconds, self._expire, "no part was asked for")
        return BackupPart(content)

    async def end(self) -> None:
        """Release the files; return when they are."""
        self._begin_release()
        if self._release is not None:
            await asyncio.shield(self._release)

    def connection_ended(self, number: ConnectionId) -> None:
        if number == self._connection:
            self._expire("its client went away")

    def _expire(self, reason: str) -> None:
        if self._release is None:
            _log.warning("backup not downloaded", user=self.owner, bytes=self._offset, reason=reason)
        self._begin_release()

    def _begin_release(self) -> None:
        if self._release is None:
            self._idle.cancel()
            self._end.cancel()
            self._release = spawn(self._released(), name="backup ends")

    async def _released(self) -> None:
        try:
            async with self._turn:
                await finished(self._stream.close)
        finally:
            self._kept.close()


async def finished(work: Callable[[], Result]) -> Result:
    """Return the result of work on a thread.

    A caller that is cancelled waits for its end: the thread must not be left behind with what it needs closed.
    """
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
