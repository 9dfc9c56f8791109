"""Moves replicas of virtual hosts between brokers for an operator.

The metadata says on which brokers replicas are to be, so a move outlives every broker, and asking again does no harm.
The leader carries it out, one replica at a time; see `cluster.moves`.
"""

from penstock.cluster.meta.commands import PlaceVhost
from penstock.cluster.record import BrokerName
from penstock.metadata.effects import Done
from penstock.model.errors import InvalidArgumentError, NotFoundError, PreconditionFailedError, Thing
from penstock.model.names import VhostName
from penstock.node.in_cluster.cluster_view import ClusterView
from penstock.services.ports import PlacedReplicas


class ReplicaMoves:
    def __init__(self, view: ClusterView) -> None:
        self._view = view

    async def move(self, vhost: VhostName, source: BrokerName, to: BrokerName) -> PlacedReplicas:
        """Have a virtual host lose the replica at a broker, and get one at another one; either may be empty.

        Raises NotFoundError, PreconditionFailedError, and UnknownOutcomeError without an answer in time.
        """
        state, thing = self._view.metadata.state, Thing("vhost", vhost)
        if vhost not in state.vhosts:
            raise NotFoundError(thing, "check the name")
        shard = state.shards_of(vhost)[0]
        before = state.placement[shard]
        after = placed_after(thing, before, source, to)
        if to and to not in before:
            self._check_new(to)
        answer = await self._view.metadata.submit(PlaceVhost(vhost, after, before))
        return PlacedReplicas(shard, after, isinstance(answer, Done) and bool(answer.count))

    def _check_new(self, broker: BrokerName) -> None:
        thing, known = Thing("broker", broker), self._view.metadata.state.brokers.get(broker)
        if known is None:
            raise NotFoundError(thing, "list the brokers with `penstock cluster status`")
        if not self._view.is_alive(broker):
            raise PreconditionFailedError(thing, "is not alive", "start it, or choose another broker")


def placed_after(
    thing: Thing, before: tuple[BrokerName, ...], source: BrokerName, to: BrokerName
) -> tuple[BrokerName, ...]:
    """Return the brokers that are to have a replica after a move; those before where it was asked for already.

    Raises InvalidArgumentError and PreconditionFailedError.
    """
    if source == to:
        rule, way_out = "cannot move a replica to the broker that has it", "choose two brokers, or one"
        raise InvalidArgumentError(thing, rule, way_out, field="to")
    if source and to and source in before and to in before:
        rule = f"is to have replicas at both brokers, '{source}' and '{to}'"
        raise PreconditionFailedError(thing, rule, f"choose another broker, or remove the replica at '{source}'")
    if source and to and source not in before and to not in before:
        raise PreconditionFailedError(
            thing, f"has no replica at broker '{source}'", f"choose one of {', '.join(before)}"
        )
    after = {*before} - {source} | ({to} if to else set())
    if not after:
        rule = f"has its only replica at broker '{source}'"
        raise PreconditionFailedError(thing, rule, "move it to another broker, or delete the virtual host")
    return tuple(sorted(after))
