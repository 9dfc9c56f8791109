"""The log of the `meta` shard on the replica of this broker.

A term begins when everything that this replica has is committed, so that a leader decides on all of it, also on what it
appended before and did not hear of. An append without records proves that the replica still leads: it is committed like
any other.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from penstock.cluster.hosted import HostedReplica, NotAppended
from penstock.cluster.meta.log import Committed, NotLeaderError, RecordsRemovedError, Term, UnknownOutcomeError

READ_BYTES_MAX: Final = 256 * 1024
"""The records that are read and applied together."""


class ReplicatedMetaLog:
    """The port `MetaLog` of one broker."""

    def __init__(self, replica: HostedReplica, ask_leader: Callable[[], Awaitable[int]]) -> None:
        """`ask_leader` asks the broker that leads for its read index. It raises NotLeaderError when none says it."""
        self._replica = replica
        self._ask_leader = ask_leader

    async def begin(self) -> Term:
        term: Term | None = None
        while True:
            changed = self._replica.changed
            if self._replica.role.epoch is None:  # it may be taking a copy of the log, and has no standing then
                raise NotLeaderError
            standing = await self._replica.standing()
            epoch = standing.role.epoch
            if epoch is None or not standing.role.appends:
                raise NotLeaderError
            if term is None or term.epoch != epoch:
                term = Term(epoch, standing.end)
            if standing.committed >= term.begins_after:
                return term
            await changed.wait()

    async def append(self, term: Term, contents: Sequence[bytes]) -> int:
        appended = await self._replica.append(term.epoch, contents)
        if appended is NotAppended.NOT_LEADING:
            raise NotLeaderError
        if appended is NotAppended.UNKNOWN:
            raise UnknownOutcomeError
        return appended

    async def read_index(self) -> int:
        if self._replica.role.epoch is None:
            return await self._ask_leader()
        return await self.own_read_index()

    async def own_read_index(self) -> int:
        """Return the read index if this broker leads. Raises NotLeaderError."""
        epoch = self._replica.role.epoch
        appended = NotAppended.NOT_LEADING if epoch is None else await self._replica.append(epoch, [])
        if isinstance(appended, NotAppended):
            raise NotLeaderError
        return appended

    async def committed(self, after: int) -> AsyncIterator[Sequence[Committed]]:
        while True:
            changed = self._replica.changed
            entries = await self._replica.read(after, READ_BYTES_MAX)
            if entries is None:
                raise RecordsRemovedError
            if entries:
                after = entries[-1].until
                yield [Committed(entry.until, entry.content) for entry in entries]
            else:
                await changed.wait()
