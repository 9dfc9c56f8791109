"""The results of the verbs about a cluster. Their fields have the names of the contract."""

from dataclasses import dataclass

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
]


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
    differing_records: int = 0
    """How many of its records had another checksum than the leader's, at the last comparison."""
    differing_position: int = 0
    """The position of the first of them."""


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
