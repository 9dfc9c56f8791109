"""The parts that services work on, as protocols, so that tests bring fakes.

They are accounts, sign-in, limits, backups, the state and figures of the broker, and its cluster.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.identity import Identity, Permission, TopicPermission, User
from penstock.kit.peers import NOWHERE, Source
from penstock.model.limits import Limits
from penstock.model.names import ConnectionId, VhostName
from penstock.native import ArchivedRuns, StreamState


class SignIn(Protocol):
    """Finds out who calls, from whatever they show. `is_loopback` is whether the client is on this machine."""

    async def log_in(self, name: str, password: str, *, is_loopback: bool, source: Source = NOWHERE) -> Identity:
        """Check a name and a password. Raises NotAuthenticatedError, which does not reveal whether the user exists."""
        ...

    async def log_in_by_certificate(self, certificate: bytes, *, is_loopback: bool) -> Identity:
        """One that was checked at the handshake, DER. Raises NotAuthenticatedError when it names no user."""
        ...

    async def log_in_by_token(self, token: str, *, is_loopback: bool) -> Identity:
        """Check a token. Raises NotAuthenticatedError, also for a token that has expired."""
        ...

    def check_open(self, identity: Identity) -> None:
        """Raise NotAuthenticatedError when the key of the token that opened a stream was removed."""
        ...

    def refresh_keys(self) -> None:
        """Start to fetch old keys of tokens, without waiting for them."""
        ...

    def watch_keys(self, removed: Callable[[], None]) -> None:
        """Call `removed` when keys of tokens were removed."""
        ...


class Passwords(Protocol):
    """The passwords of users."""

    async def has_password(self, user: User, password: str) -> bool:
        """Return whether this is the user's password. It is no log-in."""
        ...

    def accept_previous(self, user: User, seconds: float) -> None:
        """Accept the password that a user has now beside the next one, for that long or until a restart."""
        ...


class Accounts(Protocol):
    """Users and what they may do. Changes return when they are on the disk."""

    @property
    def passwords(self) -> Passwords: ...
    def users(self) -> list[User]: ...
    def find(self, name: str) -> User | None: ...

    async def put_user(
        self,
        name: str,
        password: str | None,
        tags: Sequence[str] | None,
        *,
        force: bool = False,
        is_random: bool = False,
    ) -> bool:
        """Return whether the user is new.

        None keeps the password, or the tags. Unless forced, the last administrator stays one: PreconditionFailedError.
        """
        ...

    async def delete_user(
        self, name: str, *, force: bool = False, forget: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        """Delete a user with permissions, limits and what `forget` deletes, as one step that a start completes."""
        ...

    async def set_permission(self, name: str, vhost: str, permission: Permission) -> None: ...
    async def delete_permission(self, name: str, vhost: str) -> None: ...
    async def set_topic(self, name: str, vhost: str, exchange: str, topic: TopicPermission) -> None: ...
    async def delete_topics(self, name: str, vhost: str, exchange: str | None) -> None:
        """Delete the topic permission of one exchange, or all of the vhost."""
        ...


class LimitsOfUsers(Protocol):
    """By name, whoever vouches for them. Changes return when they are on the disk."""

    def all(self) -> Mapping[str, Limits]:
        """Return the limits of the users that have any."""
        ...

    def find(self, user: str) -> Limits: ...
    async def set(self, user: str, limits: Limits) -> None: ...


@dataclass(frozen=True, slots=True)
class ArchivedPart:
    """A partition whose archive is asked for, and how its log stands.

    `archived_next` is the offset behind the last message that was ever archived; 1, the first offset, when none was.
    """

    vhost: str
    stream: str
    partition: str
    queue_id: int
    state: StreamState
    archived_next: int = 1

    @property
    def needed_next(self) -> int:
        """Return the offset behind the messages that only an archive has."""
        return min(self.archived_next, self.state.first)


@dataclass(frozen=True, slots=True)
class ArchivedRows:
    """Offsets from `start` up to `end`, all columns or some, and the conditions that the rows meet.

    With `skip_unreadable` the read goes on behind files that cannot be read.
    """

    start: int
    end: int
    columns: Sequence[str] | None = None
    key_is: bytes | None = None
    routing_key_is: bytes | None = None
    # A name and a value.
    header_is: tuple[bytes, bytes] | None = None
    skip_unreadable: bool = False


@dataclass(frozen=True, slots=True)
class ArchivedOffsets:
    """The offsets of a partition that its archive has below the log, and the first of them at a time.

    `error` says why messages cannot be read that only an archive has.
    """

    runs: ArchivedRuns | None = None
    at_timestamp: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ArchiveStanding:
    """The archived part of a partition, below its first offset."""

    first: int
    next: int
    message_count: int
    bytes: int
    at_timestamp: int | None = None


class Archives(Protocol):
    """Archived parts of streams."""

    @property
    def is_open(self) -> bool:
        """Whether there is a folder of archives."""
        ...

    async def standing(self, part: ArchivedPart, timestamp_ms: int | None, /) -> ArchiveStanding | None:
        """None when it has nothing below the log. Raises CorruptError when it cannot be read."""
        ...

    async def offsets(self, part: ArchivedPart, timestamp_ms: int | None, /) -> ArchivedOffsets:
        """Return which offsets it has below the log, and the first of them at this time or later."""
        ...

    async def piece(self, part: ArchivedPart, wanted: ArchivedRows) -> bytes:
        """Return the next record batches of a range, as the listener takes them.

        They are empty when the archive has none of it. Raises CorruptError when it cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class ShardTotals:
    """One shard of a vhost in figures."""

    ready_count: int = 0
    unacked_count: int = 0


@dataclass(frozen=True, slots=True)
class VhostTotals:
    """One vhost in figures, cheap to get. Dedicated logs are in no shard."""

    name: str
    queue_count: int
    ready_count: int
    unacked_count: int
    shards: tuple[ShardTotals, ...] = (ShardTotals(),)
    lock_wait_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PartitionTotals:
    """One partition of a stream in figures."""

    vhost: str
    partition: str
    first_offset: int
    next_offset: int
    bytes: int
    reader_count: int


@dataclass(frozen=True, slots=True)
class GroupTotals:
    """How far a group is behind in a partition."""

    vhost: str
    partition: str
    group: str
    lag: int


@dataclass(frozen=True, slots=True)
class StreamTotals:
    """The first streams by name, and how many partitions and groups are not among them."""

    partitions: list[PartitionTotals] = field(default_factory=list)
    groups: list[GroupTotals] = field(default_factory=list)
    partitions_left_out: int = 0
    groups_left_out: int = 0


@dataclass(frozen=True, slots=True)
class Recovery:
    """Work of the last start."""

    ms: float = 0
    bytes_read: int = 0
    records: int = 0
    torn_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Corruption:
    """A file of a vhost's log with records that cannot be read: `at` is the byte of the first one found."""

    vhost: str
    file: str
    at: int
    queues: tuple[str, ...] = ()
    records: int = 1


@dataclass(frozen=True, slots=True)
class NodeState:
    """Facts that seldom change, and the resources that the process uses."""

    version: str
    node: str
    data_dir: str
    uptime_seconds: float
    cpu_seconds: float
    resident_bytes: int
    listeners: Mapping[str, str] = field(default_factory=dict)
    recovery: Recovery = field(default_factory=Recovery)
    # Of the data directory, made with it; empty until it is open.
    data_id: str = ""
    # The newest format of its logs; 0 until it is open.
    data_format: int = 0
    # When the certificates that are served expire, in seconds since 1970, by their files' names.
    expiries: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WrittenBackup:
    """The result of a backup."""

    vhost_count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BegunBackup:
    """A backup to be downloaded: an archive of so many bytes."""

    id: str
    bytes: int
    vhost_count: int
    data_id: str
    version: str


@dataclass(frozen=True, slots=True)
class BackupPart:
    """The next bytes of an archive. The last part has the SHA-256 of all of them, in hexadecimal."""

    content: bytes
    is_last: bool = False
    sha256: str = ""


class Backups(Protocol):
    async def write(self, directory: str) -> WrittenBackup:
        """Write a backup; return when the copy is on the disk.

        Raises refusals and StorageError; an unfinished copy is removed then.
        """
        ...

    async def begin(self, owner: str, connection: ConnectionId, request_id: str) -> BegunBackup:
        """Fix a backup to be downloaded by this user. It ends with the connection. Raises refusals and StorageError.

        The archive names the request, if it has an id.
        """
        ...

    async def read(self, owner: str, backup: str, offset: int) -> BackupPart:
        """Return the part that begins at the offset, which is where the last one ended.

        Raises refusals, and StorageError, which ends the backup.
        """
        ...

    async def end(self, owner: str, backup: str) -> None:
        """Release a backup that is not wanted; without one of this user and id this does nothing."""
        ...

    def connection_ended(self, number: ConnectionId) -> None:
        """Release the backup that this connection began."""
        ...


class Node(Protocol):
    """The broker process as a whole."""

    def state(self) -> NodeState: ...
    def metrics(self) -> Mapping[str, float]:
        """Return the engine's counters; see `Engine.metrics` in the native module."""
        ...

    def vhost_totals(self) -> list[VhostTotals]: ...
    def stream_totals(self) -> StreamTotals: ...
    def corruptions(self) -> list[Corruption]: ...
    def reason_not_ready(self) -> str:
        """Empty when clients are served."""
        ...

    def reason_not_live(self) -> str:
        """Empty unless only a restart can help."""
        ...


@dataclass(frozen=True, slots=True)
class ClusterBroker:
    """A broker of the cluster. The addresses are those of `cluster.meta.commands.Addresses`."""

    name: str
    peers: str
    grpc: str
    amqp: str
    is_alive: bool
    is_connected: bool
    is_draining: bool


@dataclass(frozen=True, slots=True)
class ShardReplica:
    """A replica of a shard; `lag_bytes` is None where the leader does not say it."""

    broker: str
    id: str
    is_in_sync: bool
    lag_bytes: int | None
    differing_records: int = 0
    """How many of its records had another checksum than the leader's, at the last comparison."""
    differing_position: int = 0
    """The position of the first of them."""


@dataclass(frozen=True, slots=True)
class ShardRecovery:
    """An operator's recovery of a shard from a replica that may lack messages: its log ended at `end_bytes`."""

    epoch: int
    broker: str
    id: str
    end_bytes: int
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class ClusterShard:
    """A shard as the coordinator has it; `vhost` is None for the metadata.

    `is_led` is whether the leader has answered, and leads this epoch. `end_bytes` is where its log ends. `is_unknown`
    is whether the coordinator did not answer: leader, epoch and replicas are empty then.
    """

    name: str
    vhost: str | None
    leader: str
    epoch: int
    min_in_sync: int
    replicas: Sequence[ShardReplica]
    is_led: bool = False
    end_bytes: int | None = None
    is_unknown: bool = False
    recoveries: Sequence[ShardRecovery] = ()
    placed: Sequence[str] = ()
    """The brokers that are to have a replica; empty for the metadata, of which each broker has one."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The brokers and shards of a cluster as one of its brokers sees them.

    `coordinator_fault` is why the coordinator did not answer for the shards that are unknown.
    """

    cluster: str
    broker: str
    brokers: Sequence[ClusterBroker]
    shards: Sequence[ClusterShard]
    coordinator_fault: str = ""


@dataclass(frozen=True, slots=True)
class MovedLeader:
    """The broker that leads a shard, and its epoch; `is_moved` is whether another one led it before."""

    shard: str
    broker: str
    epoch: int
    is_moved: bool


@dataclass(frozen=True, slots=True)
class PlacedReplicas:
    """The brokers that are to have a replica of a shard; `is_changed` is whether others were to have one before."""

    shard: str
    brokers: Sequence[str]
    is_changed: bool


@dataclass(frozen=True, slots=True)
class RemainingReplica:
    """The replica of a shard that is left at a broker; without an `id` it has no replica, or does not answer.

    `epoch` is that of its newest record. Everything below `committed_bytes` was committed, as far as that broker knows.
    """

    broker: str
    has_answered: bool
    is_alive: bool
    id: str | None = None
    is_open: bool = False
    is_in_sync: bool = False
    epoch: int = 0
    end_bytes: int = 0
    committed_bytes: int = 0
    halted: str = ""


@dataclass(frozen=True, slots=True)
class RecoveredShard:
    """A shard that was recovered, or what that would cost.

    `most` is the broker with most of it, and `problem` why it cannot be recovered. `epoch` is the one that the chosen
    broker leads, and 0 as long as it does not.
    """

    shard: str
    replicas: Sequence[RemainingReplica]
    most: str
    problem: str
    is_recovered: bool
    epoch: int
    shard_count: int = 1
    """The shards of its virtual host, of which each is recovered by itself."""


class Cluster(Protocol):
    """The cluster that this broker is in."""

    @property
    def broker(self) -> str:
        """The name of this broker in the cluster."""
        ...

    async def status(self) -> ClusterStatus:
        """Return what is known here, and what the coordinator and the leaders of shards say within a short time."""
        ...

    async def move(self, vhost: VhostName, to: str) -> MovedLeader:
        """Return when a broker leads a virtual host.

        Raises NotFoundError, PreconditionFailedError where that broker cannot lead, and FaultError when it does not in
        time.
        """
        ...

    async def move_replica(self, vhost: VhostName, source: str, to: str) -> PlacedReplicas:
        """Have a replica of a virtual host move from a broker to another one, which goes on after the return.

        Without a source the virtual host gets one replica more, and without a goal it has one less. Raises
        NotFoundError, PreconditionFailedError and FaultError.
        """
        ...

    async def add_broker(self, broker: str, peers: str) -> bool:
        """Let a broker join that other brokers reach at an address; return whether that is new.

        Raises RefusedError and FaultError.
        """
        ...

    async def remove_broker(self, broker: str) -> None:
        """Forget a broker without replicas of virtual hosts. Raises RefusedError and FaultError."""
        ...

    async def drain(self, broker: str, *, is_draining: bool) -> bool:
        """Have a broker lead nothing, or end that; return whether it changed."""
        ...

    async def recover(
        self, vhost: VhostName, number: int, broker: str, by: str, *, accepts_loss: bool
    ) -> RecoveredShard:
        """Return what a recovery of a shard from a broker costs, and carry it out if the loss is accepted.

        Raises NotFoundError, PreconditionFailedError and FaultError.
        """
        ...
