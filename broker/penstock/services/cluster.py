"""The cluster that the broker is in: its brokers, and who leads which shard.

A broker that is in no cluster refuses all of it.
"""

from penstock.model.errors import PreconditionFailedError, Thing
from penstock.services.ports import Cluster, ClusterStatus, Node
from penstock.services.principal import Principal
from penstock.services.verbs import reading


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

    def _get(self) -> Cluster:
        if self._cluster is None:
            raise PreconditionFailedError(
                self._thing(), "is in no cluster", "ask a broker that was started with --cluster"
            )
        return self._cluster

    def _thing(self) -> Thing:
        return Thing("broker", self._node.state().node)
