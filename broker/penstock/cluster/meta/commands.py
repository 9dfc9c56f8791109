"""Commands on the metadata of a cluster, and the requests that carry them to the leader of the `meta` shard.

They hold everything from outside (digests, counts, randomness), as the commands of one virtual host do.
"""

from dataclasses import dataclass
from typing import TypeAlias

from penstock.cluster.record import BrokerName
from penstock.metadata.commands import Command
from penstock.metadata.effects import Answer
from penstock.model.errors import PreconditionFailedError, Thing
from penstock.model.limits import Limits
from penstock.model.names import VhostName
from penstock.storage.records_json import PermissionRecord, TopicRecord


@dataclass(frozen=True, slots=True)
class CreateVhost:
    name: VhostName
    shard_count: int = 1


@dataclass(frozen=True, slots=True)
class DeleteVhost:
    """Delete a virtual host with all permissions in it."""

    name: VhostName


@dataclass(frozen=True, slots=True)
class GrowVhost:
    """Add shards to a virtual host."""

    name: VhostName
    shard_count: int


@dataclass(frozen=True, slots=True)
class InVhost:
    """Change the topology of a virtual host.

    Connections have the numbers of the broker that they are on, or of the cluster.
    """

    vhost: VhostName
    command: Command


@dataclass(frozen=True, slots=True)
class PutUser:
    """Add a user or change one; None keeps the tags or the digest."""

    name: str
    tags: tuple[str, ...] | None
    password_hash: str | None
    algorithm: str
    force: bool = False


@dataclass(frozen=True, slots=True)
class DeleteUser:
    """Delete a user with its limits."""

    name: str
    force: bool = False


@dataclass(frozen=True, slots=True)
class SetPermission:
    user: str
    vhost: VhostName
    permission: PermissionRecord


@dataclass(frozen=True, slots=True)
class DeletePermission:
    user: str
    vhost: VhostName


@dataclass(frozen=True, slots=True)
class SetTopicPermission:
    user: str
    vhost: VhostName
    exchange: str
    topic: TopicRecord


@dataclass(frozen=True, slots=True)
class DeleteTopicPermissions:
    """Delete the topic permission of one exchange, or all of a virtual host."""

    user: str
    vhost: VhostName
    exchange: str | None


@dataclass(frozen=True, slots=True)
class SetUserLimits:
    user: str
    limits: Limits


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a broker is, each as HOST:PORT: for other brokers, and for clients. Empty for none."""

    peers: str = ""
    grpc: str = ""
    amqp: str = ""


@dataclass(frozen=True, slots=True)
class JoinBroker:
    """Begin the session of a broker's boot.

    `replaces` is the boot that the broker had before, None for a new broker, so that a late request of an earlier boot
    is refused.
    """

    broker: BrokerName
    boot: int
    replaces: int | None
    addresses: Addresses = Addresses()


@dataclass(frozen=True, slots=True)
class FoundCluster:
    """Make the first user of a cluster, with all permissions in the virtual host that is made with it.

    It changes nothing where users or virtual hosts are. The brokers get replicas, also before they have joined.
    """

    brokers: tuple[BrokerName, ...]
    vhost: VhostName
    user: str
    password_hash: str
    algorithm: str
    shard_count: int = 1


@dataclass(frozen=True, slots=True)
class AddBroker:
    """Let a broker join that is not of the cluster yet; `peers` is where the others reach it, as HOST:PORT."""

    broker: BrokerName
    peers: str


@dataclass(frozen=True, slots=True)
class EndSession:
    """End the session of a boot that is gone: what ends with its broker is deleted."""

    broker: BrokerName
    boot: int


@dataclass(frozen=True, slots=True)
class RemoveBroker:
    """Remove a broker without replicas from the cluster."""

    broker: BrokerName


@dataclass(frozen=True, slots=True)
class SetDraining:
    """Have a broker lead nothing, as long as another one can, or end that."""

    broker: BrokerName
    is_draining: bool


@dataclass(frozen=True, slots=True)
class SetReplicaCount:
    """Choose how many replicas each shard has, as far as there are brokers."""

    count: int


@dataclass(frozen=True, slots=True)
class PlaceVhost:
    """Choose the brokers of all shards of a virtual host, if it still has the brokers that the choice replaces."""

    vhost: VhostName
    brokers: tuple[BrokerName, ...]
    replaces: tuple[BrokerName, ...]


MetaCommand: TypeAlias = (
    CreateVhost
    | DeleteVhost
    | GrowVhost
    | InVhost
    | PutUser
    | DeleteUser
    | SetPermission
    | DeletePermission
    | SetTopicPermission
    | DeleteTopicPermissions
    | SetUserLimits
    | AddBroker
    | JoinBroker
    | FoundCluster
    | EndSession
    | RemoveBroker
    | SetDraining
    | SetReplicaCount
    | PlaceVhost
)


@dataclass(frozen=True, slots=True)
class Joined:
    """Answer: the number of the session that began."""

    session: int


MetaAnswer: TypeAlias = Answer | Joined


class SessionEndedError(PreconditionFailedError):
    """The session of a request has ended. The command may have been carried out before that."""

    def __init__(self, session: int) -> None:
        way_out = "ask again after the broker has joined the cluster again"
        super().__init__(Thing("session", str(session)), "has ended", way_out)


@dataclass(frozen=True, slots=True)
class Request:
    """A command with the session of its broker and its number there, by which a repetition is recognized.

    All requests below `answered_below` have been answered, so that their answers need not be kept. A command that
    begins or ends a session may have session 0 and is recognized by itself.
    """

    session: int
    number: int
    answered_below: int
    command: MetaCommand
