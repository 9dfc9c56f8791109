"""The rules by which the leader of the `meta` shard decides requests: those of one broker.

A refused request raises before anything of the pending state has changed.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from penstock.cluster.meta import broker_rules, user_rules
from penstock.cluster.meta.changes import MetaChange, Record, ShardPlaced, VhostDeleted, VhostGrown
from penstock.cluster.meta.commands import (
    AddBroker,
    CreateVhost,
    DeletePermission,
    DeleteTopicPermissions,
    DeleteUser,
    DeleteVhost,
    EndSession,
    FoundCluster,
    GrowVhost,
    InVhost,
    JoinBroker,
    MetaAnswer,
    MetaCommand,
    PlaceVhost,
    PutUser,
    RemoveBroker,
    Request,
    SetDraining,
    SetPermission,
    SetReplicaCount,
    SetTopicPermission,
    SetUserLimits,
)
from penstock.cluster.meta.pending import PendingState
from penstock.cluster.meta.placement import place
from penstock.cluster.meta.state import shard_name
from penstock.metadata import check_shard_count
from penstock.metadata import decide as decide_topology
from penstock.metadata.effects import Done
from penstock.model.errors import Thing
from penstock.model.names import ConnectionId, VhostName, vhost_name
from penstock.storage.records_json import PermissionRecord

CONNECTION_BITS: Final = 40
"""A connection's number in the cluster is that of its broker's session, and in so many bits its number there."""
_Decided = tuple[MetaAnswer, list[MetaChange]]


def decide(state: PendingState, request: Request) -> Record | MetaAnswer:
    """Return the record of a request, or the answer of one that changes nothing or was decided before.

    Raises RefusedError.
    """
    if not isinstance(request.command, JoinBroker | EndSession):
        known = state.known(request)
        if known is not None:
            return known
    answer, changes = _RULES[type(request.command)](state, request.command, request.session)
    if not changes:
        return answer
    record = Record(request.session, request.number, request.answered_below, answer, tuple(changes))
    state.note_answer(record)
    return record


def in_cluster(command: Any, session: int) -> Any:
    """Return a command with the number that its connection has in the cluster."""
    if not any(each.name == "connection" for each in fields(command)):
        return command
    return replace(command, connection=connection_in_cluster(command.connection, session))


def connection_in_cluster(connection: ConnectionId, session: int) -> ConnectionId:
    """Return the number that a connection has in the cluster, by the session of its broker; 0 stands for none.

    One that has such a number already keeps it: a broker that leads asks for a client that another one relays.
    """
    if not connection or connection >> CONNECTION_BITS:
        return connection
    return ConnectionId(session << CONNECTION_BITS | connection)


def _create_vhost(state: PendingState, command: CreateVhost, _: int) -> _Decided:
    name = vhost_name(command.name)
    count = check_shard_count(Thing("vhost", name), command.shard_count)
    if state.has_vhost(name):
        return Done(0), []
    created = state.create_vhost(name, count)
    return Done(), [created, *_placed(state, name, 0, count)]


def _found_cluster(state: PendingState, command: FoundCluster, session: int) -> _Decided:
    if len(state.users) or state.numbers:
        return Done(0), []
    everything = PermissionRecord(".*", ".*", ".*")
    tags = ("administrator",)
    rules: list[MetaCommand] = [
        CreateVhost(command.vhost, command.shard_count),
        PutUser(command.user, tags, command.password_hash, command.algorithm),
        SetPermission(command.user, command.vhost, everything),
    ]
    changes = broker_rules.expect(state, command.brokers)
    for rule in rules:
        changes += _RULES[type(rule)](state, rule, session)[1]
    return Done(), changes


def _grow_vhost(state: PendingState, command: GrowVhost, _: int) -> _Decided:
    vhost = state.vhost(command.name)
    before = vhost.shard_count
    check_shard_count(Thing("vhost", command.name), command.shard_count, before)
    if command.shard_count == before:
        return Done(0), []
    vhost.shard_count = command.shard_count
    placed = _placed(state, command.name, before, command.shard_count)
    return Done(), [VhostGrown(command.name, command.shard_count), *placed]


def _placed(state: PendingState, vhost: VhostName, first: int, end: int) -> list[MetaChange]:
    """Place new shards on the brokers with the fewest replicas, all shards of a virtual host on the same ones."""
    changes: list[MetaChange] = []
    brokers = state.placement.get(shard_name(vhost, 0, state.numbers[vhost])) or place(state.placement, state.usable())
    for number in range(first, end):
        shard = shard_name(vhost, number, state.numbers[vhost])
        state.placement[shard] = brokers
        changes.append(ShardPlaced(shard, brokers))
    return changes


def _delete_vhost(state: PendingState, command: DeleteVhost, _: int) -> _Decided:
    vhost = state.vhost(command.name)
    for number in range(vhost.shard_count):
        del state.placement[shard_name(command.name, number, state.numbers[command.name])]
    state.note_deleted_vhost(command.name)
    return Done(), [VhostDeleted(command.name)]


def _in_vhost(state: PendingState, command: InVhost, session: int) -> _Decided:
    inner = in_cluster(command.command, session)
    decision, changes = state.change_vhost(command.vhost, session, lambda vhost: decide_topology(vhost, inner))
    return decision.answer, changes


_RULES: Final[Mapping[type, Callable[[PendingState, Any, int], _Decided]]] = {
    CreateVhost: _create_vhost,
    GrowVhost: _grow_vhost,
    DeleteVhost: _delete_vhost,
    InVhost: _in_vhost,
    PutUser: user_rules.put,
    DeleteUser: user_rules.delete,
    SetPermission: user_rules.set_permission,
    DeletePermission: user_rules.delete_permission,
    SetTopicPermission: user_rules.set_topic,
    DeleteTopicPermissions: user_rules.delete_topics,
    SetUserLimits: user_rules.set_limits,
    AddBroker: broker_rules.add,
    JoinBroker: broker_rules.join,
    FoundCluster: _found_cluster,
    EndSession: broker_rules.end_session,
    RemoveBroker: broker_rules.remove,
    SetDraining: broker_rules.set_draining,
    SetReplicaCount: broker_rules.set_replica_count,
    PlaceVhost: broker_rules.place_vhost,
}
