"""The queues of a virtual host in the engine, for the term in which this broker leads its shards.

Changes of the topology are applied in their order, on a thread, as they are committed. The engine closes the queues by
itself when the term ends.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from penstock.kit.logging import logger
from penstock.metadata import VhostTopology, changes_of
from penstock.metadata.effects import Change, PutQueue
from penstock.model.errors import NotLedError
from penstock.model.names import VhostName
from penstock.model.records import X_DEDICATED, Queue
from penstock.native import Shard
from penstock.vhost.apply import apply_changes

_log = logger("cluster")


class Term:
    """Runs from `run` until it is cancelled, or the engine takes nothing more.

    Invariant: the engine has the topology of the beginning and the changes that were put since, up to `_applied_count`
    of them. Changes that need further shards wait until these have joined the term.
    """

    def __init__(self, vhost: VhostName, shard: Shard, epochs: tuple[int, ...]) -> None:
        self.shard = shard
        self.epochs = epochs
        """The epoch of each shard, in the order of their numbers."""
        self._vhost = vhost
        self._waiting: list[Change] = []
        self._put_count = 0
        self._applied_count = 0
        self._has_work = asyncio.Event()
        self._may_apply = asyncio.Event()
        self._may_apply.set()
        self._progress = asyncio.Condition()
        self._has_ended = False

    @property
    def is_applying(self) -> bool:
        return self._applied_count < self._put_count

    @property
    def is_held(self) -> bool:
        """Whether changes wait for further shards."""
        return not self._may_apply.is_set()

    def hold(self) -> None:
        """Have changes wait from now on: the virtual host gets further shards."""
        self._may_apply.clear()

    def release(self) -> None:
        """Have changes applied again: all shards have joined."""
        self._may_apply.set()

    async def fill(self, topology: VhostTopology) -> None:
        """Give the engine the topology of this moment. Later changes are put. Raises faults of the engine."""
        queues = [(queue.id, queue.max_priority) for queue in topology.queues.values()]
        changes = [_for_cluster(change) for change in changes_of(topology)]

        def fill() -> None:
            self.shard.retain_queues([each[0] for each in queues], [each[1] for each in queues])
            apply_changes(self.shard, changes)
            self.shard.complete()
            self.shard.carry_on_staged()

        await asyncio.to_thread(fill)

    def put(self, changes: Sequence[Change]) -> None:
        """Have changes applied after those before them."""
        if changes:
            self._waiting += map(_for_cluster, changes)
            self._put_count += len(changes)
            self._has_work.set()

    async def applied(self) -> None:
        """Return when the engine has all changes that were put before, or the term has ended."""
        wanted = self._put_count
        if self._applied_count < wanted:
            async with self._progress:
                await self._progress.wait_for(lambda: self._applied_count >= wanted or self._has_ended)

    async def run(self) -> None:
        """Apply what is put. Raises faults of the engine, after which its queues lack a change."""
        try:
            while True:
                await self._has_work.wait()
                await self._may_apply.wait()
                self._has_work.clear()
                changes, self._waiting = self._waiting, []
                await asyncio.to_thread(apply_changes, self.shard, changes)
                self._applied_count += len(changes)
                async with self._progress:
                    self._progress.notify_all()
        except NotLedError as over:
            _log.info("queues of a term take no more changes", vhost=self._vhost, reason=str(over))
        finally:
            self._has_ended = True
            async with self._progress:
                self._progress.notify_all()


def _for_cluster(change: Change) -> Change:
    """Return a change without a log of its own for a queue, which a replicated shard cannot have."""
    if isinstance(change, PutQueue) and change.queue.is_dedicated:
        return PutQueue(_without_log(change.queue))
    return change


def _without_log(queue: Queue) -> Queue:
    return replace(queue, arguments={key: value for key, value in queue.arguments.items() if key != X_DEDICATED})
