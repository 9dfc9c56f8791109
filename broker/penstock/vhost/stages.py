"""The verbs of stages: find, list and delete a stage.

Staging and deciding are admitted by the place of a stage. Rows and decisions belong to the engine.
"""

from typing import NamedTuple

from penstock.metadata import stages as rules
from penstock.metadata.commands import DeleteQueue
from penstock.metadata.effects import QueueDeclared
from penstock.metadata.stages import Target
from penstock.metadata.streams import NOBODY
from penstock.metadata.topology import VhostTopology
from penstock.model.errors import PreconditionFailedError, Thing
from penstock.model.names import QueueId
from penstock.model.records import Access, Queue
from penstock.vhost.ports import VhostOwner
from penstock.vhost.rights import Rights


class StageStatus(NamedTuple):
    """`last_batch` is the last that was decided, `is_copying` whether its rows are still on their way."""

    name: str
    target: Target
    row_count: int
    bytes: int
    last_batch: int | None
    is_copying: bool
    last_staged_ms: int


class Stages:
    """Stages of one vhost."""

    def __init__(self, owner: VhostOwner) -> None:
        self._owner = owner
        self._topology: VhostTopology = owner.topology

    async def open(self, rights: Rights, name: str, stream: str, exchange: str, key: str) -> tuple[QueueId, Target]:
        """Open a stage, and create it if it does not exist.

        Needs the permissions for publishing to the target. A stage of that name with another target is refused.
        """
        rights.require_entry(Thing("vhost", self._topology.vhost))
        target, found = await self._owner.read_serving(lambda: self._look(name, stream, exchange, key))
        rights.require(Access.WRITE, Thing("exchange", target.exchange, self._topology.vhost))
        await self._owner.read(lambda: rules.check_target(self._topology, target))
        if found is not None and rules.target_in(found) == target:
            return found.id, target
        outcome = await self._owner.submit(rules.declaration(name, target))
        assert isinstance(outcome.answer, QueueDeclared)
        return outcome.answer.queue.id, target

    async def statuses(self, rights: Rights) -> list[StageStatus]:
        """In the order of their names."""
        rights.require_entry(Thing("vhost", self._topology.vhost))
        queues = await self._owner.read(lambda: rules.all_of(self._topology))
        ids = [queue.id for queue in queues]
        states = await self._owner.apart(self._owner.shard.stream_states, ids)
        decided = await self._owner.apart(self._owner.shard.stage_states, ids)
        return [
            StageStatus(
                rules.name_of(queue),
                rules.target_in(queue),
                state.count,
                state.bytes,
                stage.last_batch,
                stage.is_copying,
                state.last_timestamp_ms,
            )
            for queue, state, stage in zip(queues, states, decided, strict=True)
        ]

    async def delete(self, rights: Rights, name: str) -> int:
        """Return the number of rows deleted with it. Needs the permission to publish to its target.

        A stage whose last batch is decided and not all copied is kept: the rest of the batch is only there.
        """
        rights.require_entry(Thing("vhost", self._topology.vhost))
        queue = await self._owner.read(lambda: rules.get(self._topology, name))
        target = rules.target_in(queue)
        rights.require(Access.WRITE, Thing("exchange", target.exchange, self._topology.vhost))
        (state,) = await self._owner.apart(self._owner.shard.stage_states, [queue.id])
        if state.is_copying:
            raise PreconditionFailedError(
                Thing("stage", name, self._topology.vhost),
                f"has rows of batch {state.last_batch}, which is decided, that are not in the target yet",
                f"publish batch {state.last_batch} again, which copies them; the next start of the broker does so too",
            )
        return (await self._owner.submit(DeleteQueue(queue.name, NOBODY))).dropped_count

    async def undecided(self) -> list[tuple[Queue, int]]:
        """Return the queues of stages that never decided a batch, with the time of their last row, 0 without rows."""
        queues = await self._owner.read(lambda: rules.all_of(self._topology))
        ids = [queue.id for queue in queues]
        states = await self._owner.apart(self._owner.shard.stream_states, ids)
        decided = await self._owner.apart(self._owner.shard.stage_states, ids)
        return [
            (queue, state.last_timestamp_ms)
            for queue, state, stage in zip(queues, states, decided, strict=True)
            if stage.last_batch is None and not stage.is_copying
        ]

    async def delete_abandoned(self, queue: Queue) -> int:
        """Delete the queue of a stage for the broker itself, unless another one has its name by now."""
        found = await self._owner.read(lambda: self._topology.queues.get(queue.name))
        if found is None or found.id != queue.id:
            return 0
        return (await self._owner.submit(DeleteQueue(queue.name, NOBODY))).dropped_count

    def _look(self, name: str, stream: str, exchange: str, key: str) -> tuple[Target, Queue | None]:
        target = rules.target_of(self._topology, stream, exchange, key)
        return target, self._topology.queues.get(rules.queue_of(name))
