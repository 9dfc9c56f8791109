"""One replica of this broker as coroutines: appends that end, records that are read, and its role."""

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum

from penstock.native import (
    Engine,
    LogEntry,
    Replica,
    ReplicaBackup,
    ReplicaRole,
    ReplicaStanding,
    Shard,
    ShardProgress,
    ShardState,
)


class NotAppended(Enum):
    """Why an append has no position."""

    NOT_LEADING = "nothing was appended, and nothing will be"
    UNKNOWN = "the replica stopped leading; the records may be committed by the next leader, or not"


class HostedReplica:
    """Invariants: `committed` never goes back; each append ends, at the latest when the replica is closed."""

    def __init__(self, native: Replica, shard: bytes) -> None:
        self.shard = shard
        self.role = ReplicaRole()
        self.committed = 0
        """How far the log is committed. Commits of queues are not reported: ask for `standing`."""
        self._native = native
        self._changed = asyncio.Event()
        self._appending: dict[int, asyncio.Future[bool]] = {}
        self._token = 0
        self._has_heard = False
        self._is_closed = False
        self.heard: Callable[[], None] = lambda: None
        """It is called when the role changes, or the record of the shard."""

    @property
    def replica(self) -> str:
        """The identity of its disk."""
        return self._native.replica

    @property
    def changed(self) -> asyncio.Event:
        """An event that is set at the next change of the role, or when more entries are committed."""
        return self._changed

    async def standing(self) -> ReplicaStanding:
        return await asyncio.to_thread(lambda: self._native.standing)

    def progress(self) -> ShardProgress | None:
        """Return how far the other replicas are; None where this one does not lead. Blocks for a moment."""
        return self._native.progress

    async def append(self, epoch: int, contents: Sequence[bytes]) -> int | NotAppended:
        """Append records as the leader of an epoch, and return the position after them when they are committed.

        Without contents it only proves that this replica leads. Raises StorageError, after which some of them may be
        appended.
        """
        return await self._append(lambda token: self._native.append(epoch, token, list(contents)))

    async def settle(self, epoch: int, until: int) -> int | NotAppended:
        """Append as the leader of an epoch that no broker needs records up to a position; return as `append` does.

        Raises StorageError.
        """
        return await self._append(lambda token: self._native.settle(epoch, token, until))

    async def _append(self, append: Callable[[int], int | None]) -> int | NotAppended:
        if self._is_closed:
            return NotAppended.NOT_LEADING
        self._token += 1
        token = self._token
        ended = self._appending[token] = asyncio.get_running_loop().create_future()
        try:
            position = await asyncio.to_thread(append, token)
            if position is None:
                return NotAppended.NOT_LEADING
            return position if await ended else NotAppended.UNKNOWN
        finally:
            del self._appending[token]

    async def read(self, after: int, bytes_max: int) -> list[LogEntry] | None:
        """Return committed records after a position, at least one if there are some; None where some were removed.

        Raises StorageError.
        """
        return await asyncio.to_thread(self._native.read, after, bytes_max)

    async def fold(self, checkpoint: int) -> bool:
        """Remove segments that have only settled records, if none above a position is settled. Raises StorageError.

        Returns whether there was something to do.
        """
        return await asyncio.to_thread(self._native.fold, checkpoint)

    async def list_checksums(self, after: int, until: int | None = None) -> bytes:
        """Return a list of committed records of one segment from a position on. Raises StorageError."""
        return await asyncio.to_thread(self._native.list_checksums, after, until)

    async def readable(self) -> Replica | None:
        """Return the replica for readers of its streams; None where it may not be read."""
        return self._native if await asyncio.to_thread(self._native.may_be_read) else None

    def end_readers(self, queue: int, reason: str) -> None:
        """End the readers of a stream that was deleted."""
        self._native.end_readers(queue, reason)

    async def begin_backup(self) -> ReplicaBackup:
        """Fix a copy of what is committed, as far as this replica knows. Raises StorageError."""
        return await asyncio.to_thread(self._native.begin_backup)

    async def record(self) -> ShardState | None:
        """Return the record of the shard, as last read or watched."""
        return await asyncio.to_thread(lambda: self._native.record)

    async def lead(self, engine: Engine, name: str, epoch: int) -> Shard | None:
        """Open the queues of the shard for the term of an epoch; None where it is over, or may not begin yet.

        Raises StorageError.
        """
        return await asyncio.to_thread(self._native.lead, engine, name, epoch)

    async def lead_further(self, engine: Engine, vhost: Shard, number: int, epoch: int) -> bool:
        """Do the same for a further shard of a virtual host whose shard 0 is open; return False in place of None.

        Raises StorageError, also where the term of that shard is over.
        """
        return await asyncio.to_thread(self._native.lead_further, engine, vhost, number, epoch)

    async def place(self, brokers: Sequence[int]) -> None:
        """Say which brokers are to have a replica, by their numbers."""
        await asyncio.to_thread(self._native.place, brokers)

    async def hand_over(self, replica: str) -> None:
        await asyncio.to_thread(self._native.hand_over, replica)

    def take_standing(self, standing: ReplicaStanding) -> None:
        """Take what was asked for. A role that was reported since is newer."""
        if not self._has_heard:
            self.take_role(standing.role)
        self.take_committed(standing.committed)

    def take_role(self, role: ReplicaRole) -> None:
        self._has_heard = True
        self.role = role
        self.wake()
        self.heard()

    def take_committed(self, below: int) -> None:
        self.committed = max(self.committed, below)
        self.wake()

    def take_replaced(self) -> None:
        """Hear that the log is a copy of the leader's now: there may be records to read that nothing announces."""
        self.wake()

    def take_ended(self, token: int, *, is_committed: bool) -> None:
        ended = self._appending.get(token)
        if ended is not None and not ended.done():
            ended.set_result(is_committed)

    def close(self) -> None:
        """End the appends that wait: their outcome is unknown."""
        self._is_closed = True
        for token in list(self._appending):
            self.take_ended(token, is_committed=False)
        self.wake()

    def wake(self) -> None:
        """Set `changed`."""
        self._changed.set()
        self._changed = asyncio.Event()
