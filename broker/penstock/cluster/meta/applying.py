"""The application of committed records on one broker: to its memory and its files, in order, exactly once.

A broker that was away for long may lack records that the log does not have any more: it goes on from a checkpoint of
another broker. A record that does not fit, or a disk that fails, ends the application: nothing after it is applied, and
a restart goes on from what the files have.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

from penstock.cluster.meta.changes import Record
from penstock.cluster.meta.codec import RECORDS, CodecError
from penstock.cluster.meta.files import MetaFiles
from penstock.cluster.meta.log import Committed, MetaLog, RecordsRemovedError
from penstock.cluster.meta.state import MetaState
from penstock.kit.logging import logger
from penstock.model.errors import FaultError, StoppedError, StorageError, Thing

_log: Final = logger("meta")
T = TypeVar("T")


class Checkpoints(Protocol):
    """The checkpoints of other brokers."""

    async def take(self, position_min: int) -> MetaState:
        """Return the state of one at or above a position. It waits as long as no broker has one."""


class Applier:
    """Runs from `run` until it is cancelled, or the first fault.

    Invariant: everything up to `_reached` is applied, and the position of `state` is at or before it: the log has
    records that are not of the metadata.
    """

    def __init__(self, state: MetaState, files: MetaFiles, log: MetaLog, checkpoints: Checkpoints) -> None:
        self.state = state
        self.stopped: StoppedError | None = None
        self._files = files
        self._log = log
        self._checkpoints = checkpoints
        self._reached = state.position
        self._turn = asyncio.Lock()
        """Held while the state changes."""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def run(self) -> None:
        cause = "its worker failed"
        try:
            while True:
                try:
                    await self._apply_committed()
                except RecordsRemovedError:
                    await self._take_checkpoint()
        except asyncio.CancelledError:
            cause = "the broker stops"
            raise
        except FaultError as fault:
            cause = str(fault)
        finally:
            self.stopped = StoppedError(Thing("shard", "meta"), cause)
            self._wake()

    async def applied(self, position: int) -> None:
        """Return when everything up to a position is applied. Raises StoppedError when that does not happen."""
        if self._reached >= position:
            return
        self.check()
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((position, reached))
        await reached

    async def unchanged(self, look: Callable[[MetaState], Awaitable[T]]) -> T:
        """Return what `look` returns; neither the state nor the checkpoint on the disk changes meanwhile."""
        async with self._turn:
            return await look(self.state)

    def check(self) -> None:
        """Raise StoppedError after the end."""
        if self.stopped is not None:
            raise StoppedError(self.stopped.thing, self.stopped.cause)

    async def _apply_committed(self) -> None:
        async for committed in self._log.committed(self._reached):
            async with self._turn:
                await self._files.apply(self.state, decode_records(committed))
            self._reached = committed[-1].position
            self._wake()

    async def _take_checkpoint(self) -> None:
        state = await self._checkpoints.take(self._reached + 1)
        async with self._turn:
            await self._files.install(state)
            self.state, self._reached = state, state.position
        _log.info("took the checkpoint of another broker", position=state.position)
        self._wake()

    def _wake(self) -> None:
        still: list[tuple[int, asyncio.Future[None]]] = []
        for position, reached in self._waiting:
            if reached.done():
                continue
            if self._reached >= position:
                reached.set_result(None)
            elif self.stopped is not None:
                reached.set_exception(StoppedError(self.stopped.thing, self.stopped.cause))
            else:
                still.append((position, reached))
        self._waiting = still


def decode_records(committed: Sequence[Committed]) -> list[tuple[int, Record]]:
    """Return records with their positions. Raises StorageError for one that this version cannot read."""
    try:
        return [(each.position, RECORDS.decode(each.content)) for each in committed if each.content is not None]
    except CodecError as error:
        raise StorageError(
            Thing("log", "meta"), f"has a record that cannot be read: {error}", "start a version that knows it"
        ) from error
