"""Leases: messages of a queue that an owner has reserved under numbers. All verbs need read permission on the queue."""

from penstock.model.names import existing_queue_name, vhost_name
from penstock.native import ReservedLease
from penstock.services.principal import Principal
from penstock.services.verbs import changing, reading, repeated
from penstock.vhost.all_vhosts import AllVhosts
from penstock.vhost.leases import Leases, QueueLeases
from penstock.vhost.rights import Rights


class LeaseVerbs:
    def __init__(self, vhosts: AllVhosts) -> None:
        self._vhosts = vhosts

    @repeated
    async def reserve_lease(
        self, principal: Principal, place: tuple[str, str], owner: str, lease: int, limits: tuple[int, int]
    ) -> ReservedLease:
        """Reserve messages of the queue that `place` names.

        The limits are the most messages and bytes, 0 for no limit.
        """
        rights, leases = self._in(principal, place[0])
        return await leases.reserve(rights, existing_queue_name(place[1]), owner, lease, limits)

    @repeated
    async def ack_leases(self, principal: Principal, vhost: str, queue: str, owner: str, up_to: int) -> int:
        """Return the number of messages that were settled."""
        rights, leases = self._in(principal, vhost)
        return await leases.ack(rights, existing_queue_name(queue), owner, up_to)

    @changing("ReleaseLeases", "vhost", "queue", "owner", "from_")
    async def release_leases(self, principal: Principal, vhost: str, queue: str, owner: str, from_: int) -> int:
        """Return the number of messages that are ready again."""
        rights, leases = self._in(principal, vhost)
        return await leases.release(rights, existing_queue_name(queue), owner, from_)

    @reading
    async def list_leases(self, principal: Principal, vhost: str, queue: str) -> QueueLeases:
        """Return them in the order of the owners' names."""
        rights, leases = self._in(principal, vhost)
        return await leases.listing(rights, existing_queue_name(queue))

    def _in(self, principal: Principal, vhost: str) -> tuple[Rights, Leases]:
        found = self._vhosts.get(vhost_name(vhost))
        return principal.in_vhost(found.name), found.leases
