"""Results of the admin verbs: plain records of vhosts, users, exchanges, queues, bindings and the broker's status.

Field names are those of the wire contract, so that `--output json` and this module never drift apart. Queue and Binding
come by the hundred thousand and are not frozen: a frozen record takes three times as long to make.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.client.values import Value

__all__ = [
    "BackupPart",
    "BegunBackup",
    "Binding",
    "Consumer",
    "Corruption",
    "DeclaredQueue",
    "DeclaredStream",
    "Exchange",
    "Group",
    "ImportedDefinitions",
    "OpenConnection",
    "PartitionOffsets",
    "Permission",
    "Producer",
    "Queue",
    "Recovery",
    "Status",
    "StreamInfo",
    "User",
    "Vhost",
]


@dataclass(frozen=True, slots=True)
class BegunBackup:
    """A backup to be downloaded: an archive of so many bytes, of the data directory with that id."""

    id: str
    bytes: int
    vhost_count: int
    data_id: str
    version: str


@dataclass(frozen=True, slots=True)
class BackupPart:
    """The next bytes of an archive; the last part has the SHA-256 of all of them, in hexadecimal."""

    content: bytes
    is_last: bool
    sha256: str


@dataclass(frozen=True, slots=True)
class DeclaredQueue:
    """A queue as its declaration answers; the name is the broker's when none was given."""

    name: str
    ready_count: int
    consumer_count: int


@dataclass(slots=True)
class Queue:
    name: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: Mapping[str, Value]
    ready_count: int
    unacked_count: int
    ready_bytes: int
    unacked_bytes: int
    consumer_count: int
    published_count: int
    delivered_count: int
    settled_count: int
    delayed_count: int = 0
    deduplicated_count: int = 0
    """Messages since the broker started that were confirmed and not stored, because the queue had seen their ids."""
    effective_arguments: Mapping[str, Value] = field(default_factory=dict)
    """The arguments with the settings of policies, as they have their effect."""
    policy: str = ""
    """The policy that applies, and that of the operators; empty if none does."""
    operator_policy: str = ""

    @property
    def type(self) -> str:
        """`classic`, or `stream`: read with `Connection.stream`."""
        return str(self.arguments.get("x-queue-type", "classic"))


@dataclass(frozen=True, slots=True)
class DeclaredStream:
    """`partitions` are the names of its queues, in order."""

    name: str
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamInfo:
    name: str
    partitions: tuple[str, ...]
    arguments: Mapping[str, Value]
    message_count: int
    bytes: int
    reader_count: int


@dataclass(frozen=True, slots=True)
class ArchivedOffsets:
    """The archived part of a partition, from `first` on and before `next`. Arrow Flight reads it, a reader does not.

    `message_count` (None when it is not known) and `bytes` are those below the log's first offset.
    """

    first: int
    next: int
    message_count: int | None
    bytes: int
    at_timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """The offsets and the number of a partition.

    `first` is the first offset that is there, `next` the one that the next message gets; `id` is the partition's own
    number, which differs for another one of the same name.
    """

    partition: str
    first: int
    next: int
    message_count: int
    bytes: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    at_timestamp: int | None = None
    id: int = 0
    archive: ArchivedOffsets | None = None


@dataclass(frozen=True, slots=True)
class Producer:
    """`sequence` is the highest stored, `used_at_ms` about when the name was used; an open one a publisher has."""

    name: str
    sequence: int
    used_at_ms: int
    is_open: bool
    owner: str = ""
    """The user who opened the name first."""


@dataclass(frozen=True, slots=True)
class Group:
    """How far the readers of a group are done with a partition; `lag` are the messages behind that."""

    name: str
    partition: str
    offset: int | None
    lag: int
    reader_count: int


@dataclass(frozen=True, slots=True)
class Lease:
    """Messages of a queue that an owner has reserved under a number."""

    lease: int
    message_count: int
    bytes: int
    reserved_at_ms: int


@dataclass(frozen=True, slots=True)
class ReservedLease:
    """A lease and its messages.

    Without messages there is no lease: nothing was ready, and its number is still the next one. `ready_count` is the
    number of messages that stay ready.
    """

    lease: Lease
    is_new: bool
    ready_count: int


@dataclass(frozen=True, slots=True)
class LeaseOwner:
    """`acked` is the highest number that is acknowledged."""

    owner: str
    acked: int
    leases: tuple[Lease, ...]


@dataclass(frozen=True, slots=True)
class QueueLeases:
    """Reservations in a queue by owner, and the number of its ready messages."""

    owners: tuple[LeaseOwner, ...]
    ready_count: int


@dataclass(frozen=True, slots=True)
class Exchange:
    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Mapping[str, Value]


@dataclass(slots=True)
class Binding:
    """From an exchange to `destination`, which is a queue or an exchange by `destination_kind`."""

    source: str
    destination_kind: str
    destination: str
    routing_key: str
    arguments: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """A connection: its number, the client's address, who logged in, and the vhosts where it has streams."""

    id: int
    peer: str
    users: tuple[str, ...]
    vhosts: tuple[str, ...]
    consumer_count: int


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer; `connection` is the number of its connection.

    One that is not `active` waits until the single active consumer of its queue leaves.
    """

    queue: str
    consumer_tag: str
    user: str
    connection: int
    prefetch: int
    auto_ack: bool
    exclusive: bool
    vhost: str
    active: bool = True
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Vhost:
    name: str
    directory: str
    ready_count: int
    unacked_count: int
    shards: int = 1
    default_queue_type: str = "classic"


@dataclass(frozen=True, slots=True)
class VhostLimits:
    """None is no limit; rates are a second's; the counts say what there is."""

    queues_max: int | None
    connections_max: int | None
    queue_count: int
    connection_count: int
    publish_rate: int | None = None
    publish_bytes_rate: int | None = None
    in_flight_bytes_max: int | None = None
    message_bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class UserLimits:
    """As those of virtual hosts; `streams_max` counts open streams that publish or consume."""

    connection_count: int
    connections_max: int | None = None
    streams_max: int | None = None
    publish_rate: int | None = None
    publish_bytes_rate: int | None = None
    in_flight_bytes_max: int | None = None
    message_bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class User:
    name: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Permission:
    """Regular expressions that a resource's whole name must match."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """Regular expressions that a whole routing key must match: `write` that of a message, `read` that of a binding."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings for every exchange or queue whose name the pattern finds itself in."""

    name: str
    pattern: str
    apply_to: str
    priority: int
    definition: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class ImportedDefinitions:
    """How many of each kind were new, and what was skipped, with the reasons."""

    added: Mapping[str, int]
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recovery:
    """Work of the broker's last start."""

    ms: float
    bytes_read: int
    records: int
    torn_bytes: int


@dataclass(frozen=True, slots=True)
class Corruption:
    """A file of a virtual host's log with records that cannot be read; what they held was dropped."""

    vhost: str
    file: str
    at: int
    queues: tuple[str, ...]
    records: int


@dataclass(frozen=True, slots=True)
class Status:
    version: str
    node: str
    uptime_seconds: float
    cpu_seconds: float
    resident_bytes: int
    connection_count: int
    consumer_count: int
    queue_count: int
    ready_count: int
    unacked_count: int
    published_total: int
    confirmed_total: int
    delivered_total: int
    settled_total: int
    recovery: Recovery
    data_dir: str
    listeners: Mapping[str, str] = field(default_factory=dict)
    corruption: tuple[Corruption, ...] = ()
    # The id that the data directory got when it was made; empty for those who may not see it.
    data_id: str = ""
    # The newest format of the logs in it; 0 of a broker that does not say it.
    data_format: int = 0
