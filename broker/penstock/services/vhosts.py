"""Virtual hosts as a whole."""

from dataclasses import dataclass
from typing import Final

from penstock.model.errors import RefusedError
from penstock.model.names import vhost_name
from penstock.native import VhostCounts
from penstock.services.connections import Connections
from penstock.services.events import Events, LimitsChanged, PermissionsChanged, TopologyChanged
from penstock.services.principal import Principal
from penstock.services.verbs import changing, reading
from penstock.storage import directory_name
from penstock.vhost.all_vhosts import AllVhosts

NO_COUNTS: Final = VhostCounts()


@dataclass(frozen=True, slots=True)
class VhostStatus:
    name: str
    directory: str
    shard_count: int = 1
    ready_count: int = 0
    unacked_count: int = 0
    default_queue_type: str = "classic"


class VhostVerbs:
    def __init__(self, vhosts: AllVhosts, connections: Connections, events: Events) -> None:
        self._vhosts = vhosts
        self._connections = connections
        self._events = events

    @reading
    async def list_vhosts(self, principal: Principal) -> list[VhostStatus]:
        """Return the virtual hosts that the principal may enter; all of them for administrators and monitoring."""
        found: list[VhostStatus] = []
        totals = await self._vhosts.totals()
        for vhost in self._vhosts.all():
            if principal.identity.sees_vhost(vhost.name):
                counts = totals.get(vhost.name, NO_COUNTS)
                directory = directory_name(vhost.name)
                found.append(
                    VhostStatus(
                        vhost.name,
                        directory,
                        vhost.shard_count,
                        counts.ready_count,
                        counts.unacked_count,
                        vhost.default_queue_type.value,
                    )
                )
        return found

    @changing("CreateVhost", "name")
    async def create_vhost(
        self, principal: Principal, name: str, shard_count: int = 1, default_queue_type: str | None = None
    ) -> bool:
        """Return whether it is new. A default queue type is also set for one that exists."""
        return await self._vhosts.create(principal.in_broker(), name, shard_count, default_queue_type)

    @changing("SetDefaultQueueType", "name", "default_queue_type")
    async def set_default_queue_type(self, principal: Principal, name: str, default_queue_type: str) -> None:
        """Set the type of its queues that are declared without one from now on."""
        await self._vhosts.get(vhost_name(name)).set_default_queue_type(principal.in_broker(), default_queue_type)

    @changing("SetVhostShards", "name")
    async def set_vhost_shards(self, principal: Principal, name: str, shard_count: int) -> None:
        """Give it more shards."""
        await self._vhosts.set_shard_count(principal.in_broker(), vhost_name(name), shard_count)

    @changing("DeleteVhost", "name")
    async def delete_vhost(self, principal: Principal, name: str) -> None:
        """Delete it with all its queues, messages, permissions and limits."""
        checked = vhost_name(name)
        with self._events.commit() as changed:
            # Whoever is in it asks again whether it may be.
            gone = PermissionsChanged(vhost=checked)
            changed.update((TopologyChanged(checked), LimitsChanged(vhost=checked), gone))
            try:
                await self._vhosts.delete(principal.in_broker(), checked)
            except RefusedError:
                changed.clear()  # after a fault, steps before it may have been done
                raise
            finally:
                if checked not in self._vhosts.by_name():
                    self._connections.vhost_deleted(checked)
