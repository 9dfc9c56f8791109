"""The cluster that the broker is in: its brokers, and who leads which shard.

A broker that is in no cluster refuses all of it.
"""

from penstock.model.errors import PreconditionFailedError, Thing
from penstock.model.names import vhost_name
from penstock.services.ports import Cluster, ClusterStatus, MovedLeader, Node, PlacedReplicas, RecoveredShard
from penstock.services.principal import Principal
from penstock.services.verbs import changing, reading


class ClusterVerbs:
    def __init__(self, cluster: Cluster | None, node: Node) -> None:
        self._cluster = cluster
        self._node = node

    @reading
    async def get_cluster_status(self, principal: Principal) -> ClusterStatus:
        """Return the brokers and shards. For administrators and monitoring."""
        if not principal.in_broker().sees_all():
            principal.require_administrator(self._thing())
        return await self._get().status()

    @changing("MoveLeader", "vhost", "broker")
    async def move_leader(self, principal: Principal, vhost: str, broker: str) -> MovedLeader:
        """Let a broker lead a virtual host, and return when it does. For administrators."""
        principal.require_administrator(Thing("vhost", vhost))
        return await self._get().move(vhost_name(vhost), broker)

    @changing("MoveReplica", "vhost", "source", "to")
    async def move_replica(self, principal: Principal, vhost: str, source: str, to: str) -> PlacedReplicas:
        """Have a replica move to another broker, or one more be made, or one be removed. For administrators."""
        principal.require_administrator(Thing("vhost", vhost))
        return await self._get().move_replica(vhost_name(vhost), source, to)

    @changing("AddBroker", "broker", "peers")
    async def add_broker(self, principal: Principal, broker: str, peers: str) -> bool:
        """Let a broker join the cluster; return whether that is new. For administrators."""
        principal.require_administrator(Thing("broker", broker))
        return await self._get().add_broker(broker, peers)

    @changing("RemoveBroker", "broker")
    async def remove_broker(self, principal: Principal, broker: str) -> None:
        """Forget a broker without replicas of virtual hosts. For administrators."""
        principal.require_administrator(Thing("broker", broker))
        await self._get().remove_broker(broker)

    @changing("SetDraining", "broker", "is_draining")
    async def set_draining(self, principal: Principal, broker: str, is_draining: bool) -> bool:
        """Have a broker lead nothing, or end that; return whether it changed. For administrators."""
        principal.require_administrator(Thing("broker", broker))
        return await self._get().drain(broker, is_draining=is_draining)

    @changing("RecoverShard", "vhost", "number", "broker", "accepts_loss")
    async def recover_shard(
        self, principal: Principal, vhost: str, number: int, broker: str, accepts_loss: bool
    ) -> RecoveredShard:
        """Let a replica lead that may lack confirmed messages, or say what that costs. For administrators."""
        principal.require_administrator(Thing("vhost", vhost))
        name = vhost_name(vhost)
        return await self._get().recover(name, number, broker, principal.name, accepts_loss=accepts_loss)

    def _get(self) -> Cluster:
        if self._cluster is None:
            raise PreconditionFailedError(
                self._thing(), "is in no cluster", "ask a broker that was started with --cluster"
            )
        return self._cluster

    def _thing(self) -> Thing:
        """Return this broker under its name in the cluster; one that is in none has that of its host."""
        return Thing("broker", self._node.state().node if self._cluster is None else self._cluster.broker)
