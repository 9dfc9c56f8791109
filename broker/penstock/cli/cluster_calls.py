"""The calls of `penstock cluster` and their results. Their fields have the names of the contract.

They are no verbs of the client's library, so they run as its own verbs do.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from penstock.client.admin_calls import call
from penstock.client.steps import Steps
from penstock.v1 import cluster_pb2

if TYPE_CHECKING:
    from penstock import Connection

__all__ = [
    "ClusterBroker",
    "ClusterRecovery",
    "ClusterReplica",
    "ClusterShard",
    "ClusterStatus",
    "MovedLeader",
    "PlacedReplicas",
    "RecoveredShard",
    "RemainingReplica",
    "add_broker",
    "cluster_status",
    "move_leader",
    "move_replica",
    "recover_shard",
    "remove_broker",
    "set_draining",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterBroker:
    """A broker of the cluster, as the broker that was asked sees it."""

    name: str
    alive: bool
    connected: bool
    draining: bool
    grpc: str
    amqp: str
    peers: str


@dataclass(frozen=True, slots=True)
class ClusterReplica:
    """A replica of a shard; `lag_bytes` is None where the leader does not say it."""

    broker: str
    id: str
    in_sync: bool
    lag_bytes: int | None


@dataclass(frozen=True, slots=True)
class ClusterRecovery:
    """A recovery by an operator: confirmed messages above `end_bytes` of that time may be lost."""

    at_unix_ms: int
    by: str
    broker: str
    id: str
    end_bytes: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ClusterShard:
    """A shard; `vhost` is None for the metadata, and `led` whether the leader has answered.

    `unknown` is whether the coordinator has not answered: leader, epoch and replicas are empty then.
    """

    name: str
    vhost: str | None
    leader: str
    epoch: int
    led: bool
    min_in_sync: int
    end_bytes: int | None
    replicas: tuple[ClusterReplica, ...]
    unknown: bool = False
    recoveries: tuple[ClusterRecovery, ...] = ()
    placed: tuple[str, ...] = ()
    """The brokers that are to have a replica; empty for the metadata."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The cluster as the broker that was asked sees it; `coordinator_fault` is why shards are unknown."""

    cluster: str
    broker: str
    brokers: tuple[ClusterBroker, ...]
    shards: tuple[ClusterShard, ...]
    coordinator_fault: str = ""


@dataclass(frozen=True, slots=True)
class MovedLeader:
    """The broker that leads a vhost; `moved` is false if it did before."""

    vhost: str
    broker: str
    shard: str
    epoch: int
    moved: bool


@dataclass(frozen=True, slots=True)
class PlacedReplicas:
    """The brokers that are to have a replica of a vhost; `changed` is false if that was asked for before."""

    vhost: str
    shard: str
    placed: tuple[str, ...]
    changed: bool


@dataclass(frozen=True, slots=True)
class RemainingReplica:
    """The replica of a shard that is left at a broker; `id` is None without one, or where a broker does not answer."""

    broker: str
    answered: bool
    alive: bool
    id: str | None
    open: bool
    in_sync: bool
    epoch: int
    end_bytes: int
    committed_bytes: int
    halted: str


@dataclass(frozen=True, slots=True)
class RecoveredShard:
    """A shard that was recovered, or what that would cost; `problem` says why it cannot be."""

    vhost: str
    broker: str
    shard: str
    replicas: tuple[RemainingReplica, ...]
    most: str
    problem: str
    recovered: bool
    epoch: int
    number: int = 0
    shard_count: int = 1
    """The shards of the virtual host, of which each is recovered by itself."""


def cluster_status(connection: "Connection") -> ClusterStatus:
    """Return the brokers and shards of the cluster."""
    request, response = cluster_pb2.GetClusterStatusRequest(), cluster_pb2.GetClusterStatusResponse
    found = _run(connection, call("GetClusterStatus", request, response))
    brokers = [
        ClusterBroker(each.name, each.alive, each.connected, each.draining, each.grpc, each.amqp, each.peers)
        for each in found.brokers
    ]
    shards = tuple(map(_shard, found.shards))
    return ClusterStatus(found.cluster, found.broker, tuple(brokers), shards, found.coordinator_fault)


def move_leader(connection: "Connection", vhost: str, broker: str) -> MovedLeader:
    """Let a broker lead a virtual host; return when it does."""
    request = cluster_pb2.MoveLeaderRequest(vhost=vhost, broker=broker)
    found = _run(connection, call("MoveLeader", request, cluster_pb2.MoveLeaderResponse))
    return MovedLeader(vhost, broker, found.shard, found.epoch, found.moved)


def move_replica(connection: "Connection", vhost: str, source: str, to: str) -> PlacedReplicas:
    """Have a replica move to another broker, or, with one of them empty, have one less or one more."""
    request = cluster_pb2.MoveReplicaRequest(vhost=vhost, source=source, to=to)
    found = _run(connection, call("MoveReplica", request, cluster_pb2.MoveReplicaResponse))
    return PlacedReplicas(vhost, found.shard, tuple(found.placed), found.changed)


def add_broker(connection: "Connection", broker: str, peers: str) -> bool:
    """Let a broker join the cluster; return whether that is new."""
    request = cluster_pb2.AddBrokerRequest(broker=broker, peers=peers)
    return _run(connection, call("AddBroker", request, cluster_pb2.AddBrokerResponse)).added


def remove_broker(connection: "Connection", broker: str) -> None:
    """Forget a broker without replicas of virtual hosts."""
    request = cluster_pb2.RemoveBrokerRequest(broker=broker)
    _run(connection, call("RemoveBroker", request, cluster_pb2.RemoveBrokerResponse))


def set_draining(connection: "Connection", broker: str, draining: bool) -> bool:
    """Have a broker lead nothing, or end that; return whether it changed."""
    request = cluster_pb2.SetDrainingRequest(broker=broker, draining=draining)
    return _run(connection, call("SetDraining", request, cluster_pb2.SetDrainingResponse)).changed


def recover_shard(
    connection: "Connection", vhost: str, broker: str, accept_loss: bool, number: int = 0
) -> RecoveredShard:
    """Let a replica lead that may lack confirmed messages, or find out what that costs."""
    request = cluster_pb2.RecoverShardRequest(vhost=vhost, broker=broker, accept_loss=accept_loss, number=number)
    found = _run(connection, call("RecoverShard", request, cluster_pb2.RecoverShardResponse))
    outcome = (found.most, found.problem, found.recovered, found.epoch, number, max(1, found.shard_count))
    return RecoveredShard(vhost, broker, found.shard, tuple(map(_remaining, found.replicas)), *outcome)


def _remaining(each: cluster_pb2.RemainingReplica) -> RemainingReplica:
    return RemainingReplica(
        each.broker,
        answered=each.answered,
        alive=each.alive,
        id=each.id if each.HasField("id") else None,
        open=each.open,
        in_sync=each.in_sync,
        epoch=each.epoch,
        end_bytes=each.end_bytes,
        committed_bytes=each.committed_bytes,
        halted=each.halted,
    )


def _shard(shard: cluster_pb2.ClusterShard) -> ClusterShard:
    return ClusterShard(
        name=shard.name,
        vhost=shard.vhost if shard.HasField("vhost") else None,
        leader=shard.leader,
        epoch=shard.epoch,
        led=shard.led,
        min_in_sync=shard.min_in_sync,
        end_bytes=shard.end_bytes if shard.HasField("end_bytes") else None,
        replicas=tuple(
            ClusterReplica(each.broker, each.id, each.in_sync, each.lag_bytes if each.HasField("lag_bytes") else None)
            for each in shard.replicas
        ),
        unknown=shard.unknown,
        recoveries=tuple(
            ClusterRecovery(each.at_unix_ms, each.by, each.broker, each.id, each.end_bytes, each.epoch)
            for each in shard.recoveries
        ),
        placed=tuple(shard.placed),
    )


def _run(connection: "Connection", steps: Steps[T]) -> T:
    return connection.admin._run(steps)
