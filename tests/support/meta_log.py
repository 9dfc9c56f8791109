"""A log of the `meta` shard in memory, shared by brokers, whose elections lose and keep records by a seed.

An append first reaches the leader alone. When the term ends before it is committed, the next election commits or drops
it. Replies are lost on the way, and requests arrive twice.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from random import Random
from typing import Final

from penstock.cluster.meta.log import Committed, NotLeaderError, RecordsRemovedError, Term, UnknownOutcomeError

STEPS_MAX: Final = 6
"""A wait takes fewer turns of the loop than this."""


class SharedLog:
    """Invariants: a position is committed once and stays; one broker at most leads."""

    def __init__(self, random: Random, loses: float = 0.0) -> None:
        """`loses`: the part of the calls and messages that are lost on their way."""
        self.random = random
        self.loses = loses
        self.committed: list[Committed] = []
        self.epoch = 0
        self.leader: str | None = None
        self.removed = 0
        """Records up to this position are removed."""
        self._uncommitted: list[bytes] = []
        self._changed = asyncio.Event()

    @property
    def end(self) -> int:
        return self.committed[-1].position if self.committed else 0

    def elect(self, broker: str | None) -> None:
        """Begin a term, and decide about what the last leader had appended."""
        self.epoch += 1
        self.leader = broker
        if self._uncommitted and self.random.random() < 0.5:
            self.commit(self._uncommitted)
        self._uncommitted = []
        if self.random.random() < 0.5:  # the log of a real shard has a record for each term
            self.committed.append(Committed(self.end + 1, None))
            self._wake()

    def append(self, contents: Sequence[bytes]) -> None:
        self._uncommitted = list(contents)

    def commit(self, contents: Sequence[bytes]) -> None:
        for content in contents:
            self.committed.append(Committed(self.end + self.random.randint(1, 3), content))
        self._uncommitted = []
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def remove(self, until: int) -> None:
        """Remove the records up to a position that all brokers in sync have without the log."""
        self.removed = max(self.removed, until)

    async def until_changed(self, position: int) -> None:
        while self.end <= position:
            await self._changed.wait()

    async def wait(self) -> None:
        """Let others run for some turns of the loop."""
        for _ in range(self.random.randrange(STEPS_MAX)):
            await asyncio.sleep(0)


class BrokerLog:
    """The log as one broker sees it."""

    def __init__(self, shared: SharedLog, broker: str) -> None:
        self._shared = shared
        self._broker = broker

    async def begin(self) -> Term:
        if self._shared.leader != self._broker:
            raise NotLeaderError
        return Term(self._shared.epoch, self._shared.end)

    async def append(self, term: Term, contents: Sequence[bytes]) -> int:
        await self._shared.wait()
        if not self._leads(term):
            raise NotLeaderError
        self._shared.append(contents)
        await self._shared.wait()
        if not self._leads(term):
            raise UnknownOutcomeError
        self._shared.commit(contents)
        if self._shared.random.random() < self._shared.loses:
            self._shared.elect(None)
            raise UnknownOutcomeError
        return self._shared.end

    async def read_index(self) -> int:
        await self._shared.wait()
        if self._shared.leader is None:
            raise NotLeaderError
        return self._shared.end

    async def committed(self, after: int) -> AsyncIterator[Sequence[Committed]]:
        while True:
            await self._shared.until_changed(after)
            await self._shared.wait()
            if after < self._shared.removed:
                raise RecordsRemovedError
            found = [each for each in self._shared.committed if each.position > after]
            taken = found[: self._shared.random.randint(1, len(found))]
            after = taken[-1].position
            yield taken

    def _leads(self, term: Term) -> bool:
        return self._shared.leader == self._broker and self._shared.epoch == term.epoch
