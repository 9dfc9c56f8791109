"""The leader of a shard of which this broker has no replica: the coordinator knows it.

Its answer is kept for a moment, so that many clients that come at once are one question.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.cluster.record import BrokerName, ShardRecord
from penstock.kit.clock import Clock
from penstock.model.errors import StorageError

KNOWN_S: Final = 1.0
"""An answer is kept for this time, also if no broker leads or the coordinator did not answer."""


class RemoteLeader:
    """Invariant: at most one question is being asked."""

    def __init__(self, read: Callable[[], Awaitable[ShardRecord | None]], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._asking = asyncio.Lock()
        self._known: BrokerName | None = None
        self._known_until = float("-inf")

    async def find(self) -> BrokerName | None:
        """Return the broker that leads, as the coordinator has said within the last moment."""
        async with self._asking:
            if self._clock.monotonic() >= self._known_until:
                try:
                    record = await self._read()
                except StorageError:
                    record = None
                self._known = None if record is None else BrokerName(record.leader.broker)
                self._known_until = self._clock.monotonic() + KNOWN_S
        return self._known
