"""The verbs of leases: messages of a queue that an owner has reserved under numbers.

They need read permission on the queue. They wait for the disk, so they run on a thread; the engine keeps the state.
"""

from dataclasses import dataclass

from penstock.metadata import queues as rules
from penstock.metadata.topology import VhostTopology
from penstock.model.errors import InvalidArgumentError, Thing
from penstock.model.names import QueueId, QueueName, check_name
from penstock.model.records import Access
from penstock.native import LeaseOwnerState, ReservedLease, Shard
from penstock.vhost.ports import VhostOwner
from penstock.vhost.rights import Rights


@dataclass(frozen=True, slots=True)
class QueueLeases:
    """Reservations in a queue by owner, and the number of messages left to reserve."""

    owners: list[LeaseOwnerState]
    ready_count: int


class Leases:
    """Leases of one vhost."""

    def __init__(self, owner: VhostOwner) -> None:
        self._owner = owner
        self._topology: VhostTopology = owner.topology

    async def reserve(
        self, rights: Rights, queue: QueueName, owner: str, lease: int, limits: tuple[int, int]
    ) -> ReservedLease:
        """`limits` are the most messages and bytes, 0 for none. Returns when the lease is on the disk."""
        queue_id = await self._admit(rights, queue)
        self._check_owner(owner)
        return await self._owner.apart(self._shard.reserve_lease, queue_id, owner, lease, *limits)

    async def ack(self, rights: Rights, queue: QueueName, owner: str, up_to: int) -> int:
        """Settle the leases up to a number, and return the number of settled messages."""
        queue_id = await self._admit(rights, queue)
        self._check_owner(owner)
        return await self._owner.apart(self._shard.ack_leases, queue_id, owner, up_to)

    async def release(self, rights: Rights, queue: QueueName, owner: str, first: int) -> int:
        """Release leases from a number on, and return the number of messages that are ready again."""
        queue_id = await self._admit(rights, queue)
        self._check_owner(owner)
        return await self._owner.apart(self._shard.release_leases, queue_id, owner, first)

    async def listing(self, rights: Rights, queue: QueueName) -> QueueLeases:
        """In the order of the owners' names."""
        queue_id = await self._admit(rights, queue)
        owners = await self._owner.apart(self._shard.leases, queue_id)
        counts = await self._owner.apart(self._shard.queue_counts, [queue_id])
        return QueueLeases(owners, counts[0].ready_count)

    @property
    def _shard(self) -> Shard:
        return self._owner.shard

    async def _admit(self, rights: Rights, name: QueueName) -> QueueId:
        rights.require(Access.READ, Thing("queue", name, self._topology.vhost))
        return await self._owner.read_delivering(lambda: self._consumed(name, rights))

    def _consumed(self, name: QueueName, rights: Rights) -> QueueId:
        queue = rules.get(self._topology, name, self._owner.number_of(rights.connection))
        rules.check_consume(self._topology, queue)
        return queue.id

    def _check_owner(self, owner: str) -> None:
        thing = Thing("owner of leases", owner[:64], self._topology.vhost)
        if not owner:
            raise InvalidArgumentError(thing, "has no name", "name the owner", field="owner")
        check_name("owner of leases", owner)
