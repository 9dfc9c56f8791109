"""Rules for the brokers of a cluster, their sessions, and where shards are."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from penstock.cluster.meta.changes import BrokerPut, BrokerRemoved, MetaChange, ReplicaCountSet, ShardPlaced
from penstock.cluster.meta.commands import (
    AddBroker,
    Addresses,
    EndSession,
    JoinBroker,
    Joined,
    MetaAnswer,
    PlaceVhost,
    RemoveBroker,
    SetDraining,
    SetReplicaCount,
)
from penstock.cluster.meta.pending import PendingState
from penstock.cluster.meta.placement import REPLICA_COUNTS
from penstock.cluster.meta.state import shard_name
from penstock.cluster.record import BrokerName
from penstock.metadata.effects import Done
from penstock.model.errors import InvalidArgumentError, LimitReachedError, NotFoundError, PreconditionFailedError, Thing

BROKERS_MAX: Final = 64
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,99}")
_NAME_WAY_OUT: Final = "a name has up to 100 of a-z, 0-9, '.' and '-', first a letter or digit"
_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.]{1,64}\]|[^\s:\[\]/=,]{1,253}):[0-9]{1,5}")
_Decided = tuple[MetaAnswer, list[MetaChange]]


def add(state: PendingState, command: AddBroker, _: int) -> _Decided:
    """Let a broker join. One that has not joined yet gets the address, and one that has keeps the one that it said."""
    thing = Thing("broker", command.broker)
    before = state.brokers.get(command.broker)
    if not _NAME.fullmatch(command.broker):
        raise InvalidArgumentError(thing, "has a name that brokers cannot have", _NAME_WAY_OUT, field="broker")
    if not _ADDRESS.fullmatch(command.peers):
        rule, way_out = f"cannot be reached at {command.peers[:100]!r}", "write the address like 10.0.0.8:5681"
        raise InvalidArgumentError(thing, rule, way_out, field="peers")
    if before is None and len(state.brokers) >= BROKERS_MAX:
        raise LimitReachedError(thing, "would be one more", "remove one that is gone", limit=BROKERS_MAX)
    if before is not None and (before.boot or before.addresses.peers == command.peers):
        return Done(0), []
    return Done(), _put(state, BrokerPut(command.broker, 0, 0, False, Addresses(command.peers)))


def join(state: PendingState, command: JoinBroker, _: int) -> _Decided:
    """Begin the session of a boot. The same boot again has the session that it has."""
    thing = Thing("broker", command.broker)
    before = state.brokers.get(command.broker)
    if before is not None and before.boot == command.boot and before.session:
        return Joined(before.session), []
    if (before.boot if before is not None else None) != command.replaces:
        rule, way_out = "has joined with another boot", "read the cluster's brokers and join again"
        raise PreconditionFailedError(thing, rule, way_out)
    if before is None and len(state.brokers) >= BROKERS_MAX:
        raise LimitReachedError(thing, "would be one more", "remove one that is gone", limit=BROKERS_MAX)
    ended = state.end_session(before.session) if before is not None and before.session else []
    session, state.next_session = state.next_session, state.next_session + 1
    is_draining = before is not None and before.is_draining
    put = BrokerPut(command.broker, command.boot, session, is_draining, command.addresses)
    return Joined(session), [*ended, *_put(state, put)]


def expect(state: PendingState, brokers: Sequence[BrokerName]) -> list[MetaChange]:
    """Let brokers be of the cluster before they have joined."""
    changes: list[MetaChange] = []
    for broker in brokers:
        if broker not in state.brokers:
            changes += _put(state, BrokerPut(broker, 0, 0, False, Addresses()))
    return changes


def end_session(state: PendingState, command: EndSession, _: int) -> _Decided:
    before = state.brokers.get(command.broker)
    if before is None or before.boot != command.boot or not before.session:
        return Done(0), []
    return Done(), [*state.end_session(before.session), *_put(state, replace(before, session=0))]


def remove(state: PendingState, command: RemoveBroker, _: int) -> _Decided:
    before = _get(state, command.broker)
    count = sum(command.broker in brokers for brokers in state.placement.values())
    if count:
        rule, way_out = f"has {count} replicas", "drain it first, and wait until it has moved them"
        raise PreconditionFailedError(Thing("broker", command.broker), rule, way_out)
    ended = state.end_session(before.session) if before.session else []
    del state.brokers[command.broker]
    return Done(), [*ended, BrokerRemoved(command.broker)]


def set_draining(state: PendingState, command: SetDraining, _: int) -> _Decided:
    before = _get(state, command.broker)
    if before.is_draining == command.is_draining:
        return Done(0), []
    others = (broker for broker in state.brokers.values() if broker.broker != command.broker)
    if command.is_draining and all(broker.is_draining for broker in others):
        rule, way_out = "is the last one that is not drained", "end the draining of another broker first"
        raise PreconditionFailedError(Thing("broker", command.broker), rule, way_out)
    return Done(), _put(state, replace(before, is_draining=command.is_draining))


def set_replica_count(state: PendingState, command: SetReplicaCount, _: int) -> _Decided:
    if command.count not in REPLICA_COUNTS:
        rule, way_out = f"cannot have {command.count} replicas", f"choose one of {', '.join(map(str, REPLICA_COUNTS))}"
        raise InvalidArgumentError(Thing("cluster", ""), rule, way_out, field="replicas")
    if command.count == state.replica_count:
        return Done(0), []
    state.replica_count = command.count
    return Done(), [ReplicaCountSet(command.count)]


def place_vhost(state: PendingState, command: PlaceVhost, _: int) -> _Decided:
    thing, count = Thing("vhost", command.vhost), state.vhost(command.vhost).shard_count
    shards = [shard_name(command.vhost, shard, state.numbers[command.vhost]) for shard in range(count)]
    if state.placement[shards[0]] != command.replaces:
        rule, way_out = "has been placed by another call", "read its brokers and choose again"
        raise PreconditionFailedError(thing, rule, way_out)
    for broker in command.brokers:
        _get(state, broker)
    if not command.brokers or len(set(command.brokers)) < len(command.brokers):
        raise InvalidArgumentError(thing, "needs different brokers, at least one", "name them", field="brokers")
    if command.brokers == command.replaces:
        return Done(0), []
    state.placement |= dict.fromkeys(shards, command.brokers)
    return Done(), [ShardPlaced(shard, command.brokers) for shard in shards]


def _get(state: PendingState, broker: BrokerName) -> BrokerPut:
    found = state.brokers.get(broker)
    if found is None:
        raise NotFoundError(Thing("broker", broker), "list the cluster's brokers and check the name")
    return found


def _put(state: PendingState, broker: BrokerPut) -> list[MetaChange]:
    state.brokers[broker.broker] = broker
    return [broker]
