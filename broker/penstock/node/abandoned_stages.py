"""Deletes abandoned stages: the rows of a task that outlived its job, which nothing will publish.

A stage is abandoned when no batch of it was ever decided and its last row is older than `producer_memory_days`. A stage
without rows and decisions, whose age is unknown, is deleted when it is found so twice in a row.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from penstock.kit.clock import Clock
from penstock.kit.logging import logger
from penstock.model.errors import FaultError, NotLedError, RefusedError
from penstock.model.names import QueueId
from penstock.vhost.vhost import Vhost

LOOK_SECONDS: Final = 3_600.0
_log = logger("node")


class Vhosts(Protocol):
    """The part of the virtual hosts that is needed here."""

    def all(self) -> Sequence[Vhost]: ...


class AbandonedStages:
    """Looks when it is called, and remembers the stages that it found empty."""

    def __init__(self, vhosts: Vhosts, clock: Clock, memory_ms: int) -> None:
        self._vhosts = vhosts
        self._clock = clock
        self._memory_ms = memory_ms
        self._empty: set[tuple[str, QueueId]] = set()

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Delete the stages of all virtual hosts that are abandoned by now."""
        before_ms, empty = self._clock.now_ms() - self._memory_ms, set[tuple[str, QueueId]]()
        for vhost in self._vhosts.all():
            try:
                for queue, last_staged_ms in await vhost.stages.undecided():
                    is_empty, key = last_staged_ms == 0, (vhost.name, queue.id)
                    if is_empty:
                        empty.add(key)
                    if key in self._empty if is_empty else last_staged_ms < before_ms:
                        dropped_count = await vhost.stages.delete_abandoned(queue)
                        _log.info("abandoned stage deleted", vhost=vhost.name, queue=queue.name, rows=dropped_count)
            except NotLedError:
                continue  # the broker of the cluster that leads the virtual host deletes them
            except (FaultError, RefusedError) as error:
                _log.warning("abandoned stages not deleted", vhost=vhost.name, reason=str(error))
        self._empty = empty
