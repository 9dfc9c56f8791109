"""Changes that commands make: the content of the `meta` shard's log.

A change is decided: it means the same on every broker and in every later version.
"""

from dataclasses import dataclass
from typing import TypeAlias

from penstock.cluster.meta.commands import Addresses, MetaAnswer
from penstock.cluster.record import BrokerName
from penstock.metadata.effects import Entry
from penstock.model.limits import Limits
from penstock.model.names import QueueId, VhostName
from penstock.storage.records_json import UserRecord


@dataclass(frozen=True, slots=True)
class VhostCreated:
    """A virtual host was created. No other one has its number, also none of the same name before or after it."""

    name: VhostName
    shard_count: int
    number: int


@dataclass(frozen=True, slots=True)
class VhostDeleted:
    """A virtual host was deleted with its permissions and the places of its shards, which are not written."""

    name: VhostName


@dataclass(frozen=True, slots=True)
class VhostGrown:
    name: VhostName
    shard_count: int


@dataclass(frozen=True, slots=True)
class VhostChanged:
    """Entries of a topology, also of things that end with their broker: the session is theirs."""

    vhost: VhostName
    session: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class VhostCounted:
    """Numbers of a topology that its entries do not show: those of queues that are deleted count, too."""

    vhost: VhostName
    next_queue_id: QueueId
    put_count: int


@dataclass(frozen=True, slots=True)
class UserPut:
    user: UserRecord


@dataclass(frozen=True, slots=True)
class UserDeleted:
    """A user was deleted with its limits, which are not written."""

    name: str


@dataclass(frozen=True, slots=True)
class UserLimitsSet:
    user: str
    limits: Limits


@dataclass(frozen=True, slots=True)
class BrokerPut:
    """A broker of the cluster. `session` is 0 after the end of the boot's session, and before it has joined."""

    broker: BrokerName
    boot: int
    session: int
    is_draining: bool
    addresses: Addresses


@dataclass(frozen=True, slots=True)
class BrokerRemoved:
    broker: BrokerName


@dataclass(frozen=True, slots=True)
class SessionsCounted:
    """The numbers of the next session and of the next virtual host."""

    next_session: int
    next_vhost: int


@dataclass(frozen=True, slots=True)
class ReplicaCountSet:
    count: int


@dataclass(frozen=True, slots=True)
class ShardPlaced:
    shard: str
    brokers: tuple[BrokerName, ...]


MetaChange: TypeAlias = (
    VhostCreated
    | VhostDeleted
    | VhostGrown
    | VhostChanged
    | VhostCounted
    | UserPut
    | UserDeleted
    | UserLimitsSet
    | BrokerPut
    | BrokerRemoved
    | SessionsCounted
    | ReplicaCountSet
    | ShardPlaced
)


@dataclass(frozen=True, slots=True)
class Record:
    """The record of one command: its request's numbers, its answer, and its changes."""

    session: int
    number: int
    answered_below: int
    answer: MetaAnswer
    changes: tuple[MetaChange, ...]
