"""The interface of the native module.

Only `penstock.native`, `penstock.client.native` and `penstock.spark.json_native` import it. The broker's part raises the classes of `penstock.model.errors`, the client's part raises RpcError.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from os import PathLike
from typing import Any, Self, final

__all__ = [
    "AppendEnded",
    "ArchivedRuns",
    "Backup",
    "BackupFile",
    "BadBody",
    "BindingChange",
    "Call",
    "ChangeAsked",
    "Channel",
    "ChannelTls",
    "ClusterNode",
    "ComparedLists",
    "Consumer",
    "CorruptFile",
    "CorruptRecord",
    "DeadLetterRoute",
    "DecodedBodies",
    "Delivery",
    "DescribeStreams",
    "DifferingRecord",
    "Disconnected",
    "DroppedMessage",
    "EndQueues",
    "Engine",
    "Enter",
    "ExchangeDeclare",
    "ExchangeDelete",
    "FindLeader",
    "GroupState",
    "HeaderIs",
    "HeardLeader",
    "JsonDecoder",
    "LeaseOwnerState",
    "LeaseState",
    "LogEntry",
    "LogRecovery",
    "LogRepair",
    "LogReplaced",
    "MessageId",
    "NamedCertificate",
    "NamesUser",
    "NewQueue",
    "NewRoute",
    "NodeNotice",
    "Notice",
    "OffsetRun",
    "OpenBackup",
    "OpenConsume",
    "OpenConsumer",
    "OpenGet",
    "OpenPublish",
    "OpenRead",
    "OpenReplicaBackup",
    "OpenSettle",
    "OpenStage",
    "OutcomeRange",
    "Pattern",
    "PeerChanged",
    "PeerMessage",
    "PeerTls",
    "PermitExchange",
    "PermitKeys",
    "PermitUserId",
    "ProducerSequences",
    "ProducerState",
    "Publisher",
    "QueueCounts",
    "QueueDeclare",
    "QueueDelete",
    "QueuePurge",
    "QueueUnused",
    "ReadArchive",
    "ReadAsked",
    "Reader",
    "RecordsCommitted",
    "RelayOrigin",
    "Renew",
    "Replica",
    "ReplicaBackup",
    "ReplicaFailed",
    "ReplicaHolder",
    "ReplicaIdentity",
    "ReplicaPosition",
    "ReplicaRole",
    "ReplicaStanding",
    "ReservedLease",
    "RetrySchedule",
    "RoleChanged",
    "RpcError",
    "SeenIds",
    "SegmentReport",
    "Server",
    "Shard",
    "ShardProgress",
    "ShardState",
    "StageState",
    "StreamDelivery",
    "StreamPartition",
    "StreamRetention",
    "StreamState",
    "Tls",
    "UnaryCall",
    "UsageLimits",
    "VhostCounts",
    "compare_lists",
    "inspect_log",
    "perf_amqp",
    "perf_interrupt",
    "perf_latency",
    "perf_throughput",
    "prepare_replica",
    "read_replica",
    "repair_log",
    "version",
]

version: str

class RpcError(Exception):
    """A call ended with a gRPC status. `args` is (code: int, message: str, details: bytes)."""

# ---------------------------------------------------------------- patterns

@final
class Pattern:
    """A regular expression that is matched in time linear in the text, without state and without I/O."""

    source: str
    size: int
    """The bytes that the compiled pattern takes, without the caches of matching."""
    def __new__(cls, source: str, *, is_whole: bool) -> Self:
        """Compile a pattern that matches a whole text, or any part of one. Raises InvalidArgumentError."""
    def matches(self, text: str) -> bool: ...
    def __hash__(self) -> int: ...

# ---------------------------------------------------------------- the Spark connector's side

@final
class JsonDecoder:
    """Decodes JSON objects to the columns of a schema, which comes as a stream of Arrow's IPC. Raises ValueError."""

    def __new__(cls, schema: bytes) -> Self: ...
    def decode(self, offsets: bytes, bodies: bytes) -> DecodedBodies:
        """Return a stream of IPC with a struct for each body, and the reasons of bad rows, whose structs are null.

        Row `i` is what lies between offsets `i` and `i + 1`, four bytes each, counted from the first. An empty body is
        null and not bad.
        """

@final
class DecodedBodies:
    """A stream of IPC with a struct for each body, and the bad ones, whose structs are null."""

    batch: bytes
    bad: list[BadBody]

@final
class BadBody:
    """The row of a body that is not decoded, and why."""

    row: int
    reason: str

# ---------------------------------------------------------------- the broker's side: records

@final
class NewQueue:
    """A queue to put. Only streams have a `retention`, and only other queues limits, a time of expiry and priorities.

    It stays in the shard where it is put first.
    """

    id: int
    name: str
    auto_delete: bool
    level: str | None
    least_level: str | None
    """The lowest level that a publisher can choose."""
    retention: StreamRetention | None
    message_ttl_ms: int | None
    messages_max: int | None
    bytes_max: int | None
    rejects_publish: bool
    """Whether it refuses messages when it is full; otherwise it drops the oldest ones."""
    dead_letters_refused: bool
    """Whether those that it refuses are dead letters."""
    expires_ms: int | None
    max_priority: int
    fair_key: str | None
    """Its messages of priority `n` are in the log under the id that is `n` higher."""
    single_active: bool
    consumer_timeout_ms: int | None
    shard: int
    dead_letters: DeadLetterRoute | None
    """Without one they are dropped."""
    delivery_limit: int | None
    """How often its messages may come back after a delivery; None is any number."""
    counts_failures: bool
    """Whether only messages count as delivered on which a consumer failed: it rejected them, or it is gone."""
    retries: RetrySchedule | None
    """Without one, messages that come back are ready at once."""
    deduplication: SeenIds | None
    def __new__(cls, *, id: int, name: str, auto_delete: bool = False, level: str | None = None, least_level: str | None = None, retention: StreamRetention | None = None, message_ttl_ms: int | None = None, messages_max: int | None = None, bytes_max: int | None = None, rejects_publish: bool = False, dead_letters_refused: bool = False, expires_ms: int | None = None, max_priority: int = 0, fair_key: str | None = None, single_active: bool = False, consumer_timeout_ms: int | None = None, shard: int = 0, dead_letters: DeadLetterRoute | None = None, delivery_limit: int | None = None, counts_failures: bool = False, retries: RetrySchedule | None = None, deduplication: SeenIds | None = None) -> Self: ...

@final
class RetrySchedule:
    """Which messages that come back wait (`all`, `failed`, `returned`) and for how long, in ms; steps count before the rest."""

    kind: str
    min_ms: int
    max_ms: int | None
    steps_ms: list[int]
    def __new__(cls, *, kind: str, min_ms: int = 0, max_ms: int | None = None, steps_ms: Sequence[int]) -> Self: ...

@final
class SeenIds:
    """How a queue or an exchange recognizes repetitions: by a header, among so many ids, each for so long."""

    header: str
    size_max: int
    ttl_ms: int | None
    def __new__(cls, *, header: str, size_max: int, ttl_ms: int | None = None) -> Self: ...

@final
class DeadLetterRoute:
    """Where the dead letters of a queue go: with the keys of the message if there is no `routing_key`."""

    exchange: str
    routing_key: str | None
    at_least_once: bool
    """Whether a message stays in its queue as long as no queue takes it."""
    def __new__(cls, *, exchange: str, routing_key: str | None = None, at_least_once: bool = False) -> Self: ...

@final
class ProducerSequences:
    """All messages up to `complete` are stored, and `highest` is the last that any log has."""

    complete: int
    highest: int
    def __new__(cls, *, complete: int, highest: int) -> Self: ...

@final
class StreamRetention:
    """How much a stream keeps; 0 is no limit."""

    age_ms_max: int
    bytes_max: int
    def __new__(cls, *, age_ms_max: int = 0, bytes_max: int = 0) -> Self: ...

@final
class NewRoute:
    """A route to add or to remove; `destination` is the name of a queue or an exchange.

    For headers exchanges `match` is the AMQP table of the binding's arguments, as on the wire, without its length.
    """

    exchange: str
    key: str
    match: bytes | None
    to_exchange: bool
    destination: str
    def __new__(cls, *, exchange: str, key: str, match: bytes | None = None, to_exchange: bool = False, destination: str) -> Self: ...

@final
class QueueCounts:
    ready_count: int
    delayed_count: int
    unacked_count: int
    ready_bytes: int
    unacked_bytes: int
    consumer_count: int
    published_count: int
    delivered_count: int
    settled_count: int
    deduplicated_count: int
    """Messages since the start that were not stored because it had seen their ids."""
    def __new__(cls, *, ready_count: int = 0, delayed_count: int = 0, unacked_count: int = 0, ready_bytes: int = 0, unacked_bytes: int = 0, consumer_count: int = 0, published_count: int = 0, delivered_count: int = 0, settled_count: int = 0, deduplicated_count: int = 0) -> Self: ...

@final
class VhostCounts:
    """Messages in all queues of a virtual host that are not streams, and how long threads waited for its locks."""

    ready_count: int
    unacked_count: int
    lock_wait_ns: int
    def __new__(cls, *, ready_count: int = 0, unacked_count: int = 0, lock_wait_ns: int = 0) -> Self: ...

@final
class StreamState:
    """`first` is the first offset that is stored, `next` the offset of the next message."""

    first: int
    next: int
    count: int
    bytes: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    reader_count: int
    def __new__(cls, *, first: int = 0, next: int = 0, count: int = 0, bytes: int = 0, first_timestamp_ms: int = 0, last_timestamp_ms: int = 0, reader_count: int = 0) -> Self: ...

@final
class GroupState:
    """A group of a stream's readers and the offset that it has stored."""

    name: str
    offset: int | None
    reader_count: int
    def __new__(cls, *, name: str, offset: int | None = None, reader_count: int = 0) -> Self: ...

@final
class ReservedLease:
    """`ready_count` is the number of messages that stay ready."""

    message_count: int
    bytes: int
    reserved_at_ms: int
    is_new: bool
    ready_count: int
    def __new__(cls, *, message_count: int, bytes: int, reserved_at_ms: int, is_new: bool, ready_count: int) -> Self: ...

@final
class LeaseState:
    number: int
    message_count: int
    bytes: int
    reserved_at_ms: int
    def __new__(cls, *, number: int, message_count: int, bytes: int = 0, reserved_at_ms: int = 0) -> Self: ...

@final
class LeaseOwnerState:
    """`acked` is the highest number that the owner has acknowledged."""

    name: str
    acked: int
    leases: list[LeaseState]
    def __new__(cls, *, name: str, acked: int = 0, leases: Sequence[LeaseState]) -> Self: ...

@final
class ProducerState:
    """A named producer: its highest sequence, about when it was used, and whether a publisher has it open.

    `owner` is the user who owns it, or None.
    """

    name: str
    sequence: int
    used_at_ms: int
    is_open: bool
    owner: str | None
    def __new__(cls, *, name: str, sequence: int, used_at_ms: int = 0, is_open: bool = False, owner: str | None = None) -> Self: ...

@final
class StageState:
    """The last batch that was decided, and whether it is still to be copied."""

    last_batch: int | None
    is_copying: bool
    def __new__(cls, *, last_batch: int | None = None, is_copying: bool = False) -> Self: ...

@final
class CorruptFile:
    """A file with corruption: the byte where it begins, the number of bad records, the names of their queues."""

    file: str
    at: int
    record_count: int
    queues: list[str]
    def __new__(cls, *, file: str, at: int, record_count: int, queues: Sequence[str]) -> Self: ...

@final
class DroppedMessage:
    """A message that a repair of a log dropped."""

    queue_id: int
    sequence: int
    error: str
    def __new__(cls, *, queue_id: int, sequence: int, error: str) -> Self: ...

@final
class LogRecovery:
    """Cost of opening the log of a virtual host and those of its queues."""

    microseconds: int
    bytes_read: int
    records: int
    torn_bytes: int
    def __new__(cls, *, microseconds: int = 0, bytes_read: int = 0, records: int = 0, torn_bytes: int = 0) -> Self: ...

@final
class MessageId:
    """A message by its queue and its sequence there."""

    queue_id: int
    sequence: int
    def __new__(cls, *, queue_id: int, sequence: int) -> Self: ...

@final
class CorruptRecord:
    """A record that cannot be read: its byte in the file, its position in the log, and the messages that need it."""

    at: int
    position: int
    error: str
    messages: list[MessageId]
    def __new__(cls, *, at: int, position: int, error: str, messages: Sequence[MessageId]) -> Self: ...

@final
class SegmentReport:
    """Contents of a segment; `error` is the first error, `error_at` its byte in the file."""

    file: str
    first_position: int
    bytes: int
    records: int
    messages: int
    settles: int
    error: str | None
    error_at: int | None
    corrupt: list[CorruptRecord]
    def __new__(cls, *, file: str, first_position: int, bytes: int, records: int, messages: int, settles: int, error: str | None = None, error_at: int | None = None, corrupt: Sequence[CorruptRecord]) -> Self: ...

@final
class LogRepair:
    """Result of a repair: dropped messages, and the names of files that no start reads any more."""

    dropped: list[DroppedMessage]
    set_aside: list[str]
    def __new__(cls, *, dropped: Sequence[DroppedMessage], set_aside: Sequence[str]) -> Self: ...

@final
class UsageLimits:
    """Limits of a user or a virtual host that the listener enforces; None is no limit."""

    publish_rate: int | None
    publish_bytes_rate: int | None
    in_flight_bytes_max: int | None
    message_bytes_max: int | None
    streams_max: int | None
    def __new__(cls, *, publish_rate: int | None = None, publish_bytes_rate: int | None = None, in_flight_bytes_max: int | None = None, message_bytes_max: int | None = None, streams_max: int | None = None) -> Self: ...

@final
class NamedCertificate:
    """A certificate for clients that ask for a host by `name`; `*.` in front stands for one label."""

    name: str
    chain: bytes
    key: bytes
    def __new__(cls, *, name: str, chain: bytes, key: bytes) -> Self: ...

@final
class Notice:
    """A line of the engine for the broker's log."""

    is_warning: bool
    text: str
    def __new__(cls, *, is_warning: bool, text: str) -> Self: ...

# ---------------------------------------------------------------- the broker's side

@final
class Engine:
    """All shards of this process, and the threads that sync and fold."""

    def __new__(
        cls,
        *,
        segment_bytes_min: int,
        segment_bytes_max: int,
        segment_idle_ms: int,
        disk_free_bytes_min: int = 0,
        compaction_bytes_per_second: int = 0,
        producer_memory_ms: int = 0,
        producers_of_user_max: int = 4096,
    ) -> Self: ...
    def open_shard(self, name: str, directory: str, *, page_cache_lost: bool) -> Shard:
        """Open and recover the log of a virtual host (blocking, without the GIL). Raises StorageError.

        With `page_cache_lost` (the last stop was not clean and the machine has booted since) every queue skips 2^32 sequences.
        """
    def metrics(self) -> dict[str, float]:
        """Return counters over all shards by name.

        They are published_total, confirmed_total, delivered_total, settled_total, returned_total, published_bytes_total,
        delivered_bytes_total, log_bytes_written_total, syncs_total, sync_seconds_total, compaction_bytes_total,
        compactions_given_up_total, segments, mapped_bytes, connections, consumers, readers, expired_total,
        corrupt_records_total, quarantined_segments, dedicated_logs (open logs of queues' own), disk_full (1 while publishers
        are refused because the disk is full), disk_free_bytes.
        """
    def take_notices(self) -> list[Notice]:
        """Return the lines for the broker's log since the last call."""
    def close(self) -> None:
        """Flush and sync every shard, write a last checkpoint and end the threads (blocking, without the GIL)."""

@final
class Shard:
    """One vhost's logs and what flows through them. Calls take the shard's lock for less than a millisecond, without the GIL."""

    name: str
    recovery: LogRecovery
    highest_queue_id: int
    @property
    def is_stalled(self) -> bool:
        """Whether the lock of the shard, or of another log of the vhost, is held for long, as by a call that waits for a slow disk.

        Other calls would wait too, except `fault`, `totals` and `corruptions`, which then return what was known last.
        """
    @property
    def fault(self) -> str | None:
        """Why nothing is stored or confirmed any more: a write or a sync that failed."""
    def retain_queues(self, ids: Sequence[int], priorities: Sequence[int] = ...) -> int:
        """Delete queues of the log that are not among `ids`, once, after the definitions are read; return their number.

        `priorities` has the highest priority of each of them, 0 for a queue without.
        """
    def put_queues(self, queues: Sequence[NewQueue]) -> None:
        """Put queues. The lock is held once for all of them, so pass at most a thousand or so."""
    @property
    def shard_count(self) -> int:
        """How many shards the vhost has."""
    def end_term(self) -> None:
        """End the term of all shards of a vhost in a cluster: consumers are cancelled, and nothing more is stored."""
    def count_shards(self, count: int) -> None:
        """Say how many shards a vhost in a cluster has, which are all open. Raises StorageError and NotLedError."""
    def grow(self, count: int) -> None:
        """Create shards until there are so many (blocking, without the GIL). Raises StorageError; then it may be repeated."""
    def dedicate_queue(self, id: int) -> None:
        """Create a log for a queue, before it is put for the first time (blocking, without the GIL).

        A queue that has one keeps it. Raises DiskFullError or another StorageError, and then leaves nothing behind.
        """
    def delete_queue(self, id: int) -> int:
        """Delete a queue: end its consumers, drop its messages, and return their number, unacked ones included."""
    def shut_empty_queue(self, id: int) -> QueueCounts:
        """Shut a queue that holds no messages, until it is deleted or reopened. Returns what it holds."""
    def shut_queue(self, id: int) -> None:
        """Refuse further messages for a queue, whatever it holds, until it is deleted or reopened."""
    def reopen_queue(self, id: int) -> None: ...
    def use_queue(self, id: int) -> None:
        """Note that a queue was declared again: the time after which it expires begins anew."""
    def is_unused(self, id: int) -> bool:
        """Return whether a queue was unused for its time of expiry, and is unused now."""
    def purge_queue(self, id: int) -> int:
        """Drop the ready messages and return their number."""
    def put_exchange(self, name: str, kind: str, alternate: str | None, *, algorithm: str = "ring", hash_header: str | None = None, hash_property: str | None = None, delayed: bool = False, history_length: int | None = None, deduplication: SeenIds | None = None) -> None:
        """Add an exchange, or change its alternate, whether it delays messages that ask for it, how many of its last messages it keeps, and how it recognizes repetitions. `algorithm` and what is hashed matter to consistent hashing alone."""
    def delete_exchange(self, name: str) -> None: ...
    def add_routes(self, routes: Sequence[NewRoute]) -> None:
        """Add routes, at most as many as of queues. The same route twice is one."""
    def remove_route(self, route: NewRoute) -> None: ...
    def queue_counts(self, ids: Sequence[int]) -> list[QueueCounts]: ...
    def stream_states(self, ids: Sequence[int]) -> list[StreamState]:
        """Return a state per stream, zeros for a queue that is not one.

        This and `offset_at` read records: they may wait for the disk (without the GIL).
        """
    def stream_extents(self, ids: Sequence[int]) -> list[StreamState]:
        """Return the states without times, which are 0: nothing is read."""
    def offset_at(self, id: int, timestamp_ms: int) -> int:
        """Return the first offset of a stream that was stored then or later; the next one when everything is older."""
    def trim_stream(self, id: int, before: int) -> int:
        """Drop a stream's messages below an offset, in whole sealed segments; return their number. May block on the disk."""
    def stream_groups(self, id: int) -> list[GroupState]:
        """Return a stream's groups in the order of their names."""
    def store_offset(self, id: int, group: str, offset: int) -> None:
        """Store how far a group has read, and wait (without the GIL) until that is on the disk: call it on a thread.

        Raises InvalidArgumentError when the stream does not have the offset yet.
        """
    def delete_group(self, id: int, group: str) -> bool:
        """Delete the stored offset of a group; return whether it had one."""
    def reserve_lease(self, id: int, owner: str, lease: int, messages_max: int, bytes_max: int) -> ReservedLease:
        """Take ready messages into an owner's next lease, or return that lease again. 0 is no limit.

        It reads the messages and waits (without the GIL) until the lease is on the disk: call it on a thread. Raises
        InvalidArgumentError for a number that is neither that of a lease nor the next one.
        """
    def ack_leases(self, id: int, owner: str, up_to: int) -> int:
        """Ack an owner's leases up to a number and delete them; return the number of messages."""
    def release_leases(self, id: int, owner: str, from_: int) -> int:
        """Requeue an owner's leases from a number on; return the number of messages. From 0 on, delete the owner too."""
    def leases(self, id: int) -> list[LeaseOwnerState]:
        """Return a queue's owners of leases in the order of their names."""
    def producer_sequences(self, name: str) -> ProducerSequences | None:
        """Return the sequence of a producer up to which all is stored, and the highest of any log."""
    def producer_owner(self, name: str) -> str | None:
        """Return the user who owns a producer's name; None for a name that is not there or has no owner."""
    def producers(self) -> list[ProducerState]:
        """Return the named producers in no order."""
    def delete_producer(self, name: str) -> bool:
        """Delete a named producer with its sequence, and return whether it was there, once that is on the disk.

        Call it on a thread. Its publish stream gets an error at the next message.
        """
    def delete_producers_of(self, user: str) -> int:
        """Delete the named producers that a user owns, and return their number, once that is on the disk.

        Call it on a thread. Their publish streams get an error at the next message.
        """
    def stage_states(self, ids: Sequence[int]) -> list[StageState]: ...
    def complete(self) -> None:
        """Say that the definitions are applied: from now on messages expire, and dead letters move."""
    def carry_on_staged(self) -> None:
        """Start to copy, on a thread, batches that were decided before the start."""
    def corruptions(self) -> list[CorruptFile]:
        """Return the files with corruption found since the shard was opened."""
    def totals(self) -> VhostCounts:
        """Return the messages in all queues that are not streams."""
    def shard_totals(self) -> list[VhostCounts]:
        """Return the part of it in each shard; dedicated logs are in no shard."""
    def route(self, exchange: str, key: str, headers: bytes | None) -> list[str]:
        """Return the names of the queues that a message would reach, sorted. For tests: the pure router is its oracle."""
    def begin_backup(self) -> Backup:
        """Fix what a copy of the log holds: everything stored until now. Raises StorageError."""
    def close(self, *, delete: bool) -> None:
        """End consumers and publishers of this shard; with `delete` delete its files too."""

@final
class Backup:
    """A copy of a log to be made. Until it is written or closed the log is not compacted and no file is removed."""

    position: int
    def write(self, directory: str) -> None:
        """Write the copy to an empty directory (blocking, without the GIL). Raises StorageError."""
    def open(self) -> OpenBackup:
        """Open the copy to be read instead (blocking, without the GIL). Raises StorageError."""
    def close(self) -> None:
        """Drop the copy; after `write` or `open` this does nothing."""

@final
class BackupFile:
    """One file of a copy: its path in the vhost's directory, how many bytes of it are read, and its size."""

    path: str
    bytes: int
    size: int
    def __new__(cls, *, path: str, bytes: int, size: int) -> Self: ...

@final
class OpenBackup:
    """A copy of a log to be read. Until it is closed the log is not compacted and none of its files is removed."""

    @property
    def files(self) -> list[BackupFile]: ...
    def read(self, file: int, at: int, length: int) -> bytes:
        """Return a part of a file, at most up to its end (blocking, without the GIL). Raises StorageError."""
    def close(self) -> None:
        """Release the files, once a read has ended (blocking, without the GIL)."""

@final
class UnaryCall:
    """A unary method by its name, such as "DeclareQueue", with its serialised request: answered with `answer`."""

    method: str
    payload: bytes
    def __new__(cls, *, method: str, payload: bytes) -> Self: ...

@final
class OpenPublish:
    """A publish stream opens: answered with `admit`, like the other questions about streams and queues."""

    vhost: str
    def __new__(cls, *, vhost: str) -> Self: ...

@final
class PermitExchange:
    """An open publish stream wants to write to an exchange."""

    vhost: str
    exchange: str
    def __new__(cls, *, vhost: str, exchange: str) -> Self: ...

@final
class PermitUserId:
    """A publish stream has a message with another user's name as `user_id`: answered with `admit`."""

    vhost: str
    def __new__(cls, *, vhost: str) -> Self: ...

@final
class PermitKeys:
    """An open publish stream wants to write with routing keys to an exchange: answered with `permit_keys`.

    A byte of a key that is not UTF-8 is a lone surrogate.
    """

    vhost: str
    exchange: str
    keys: list[str]
    def __new__(cls, *, vhost: str, exchange: str, keys: Sequence[str]) -> Self: ...

@final
class OpenConsume:
    vhost: str
    queue: str
    def __new__(cls, *, vhost: str, queue: str) -> Self: ...

@final
class OpenRead:
    vhost: str
    partition: str
    group: str
    single_active: bool
    from_replica: bool
    def __new__(
        cls, *, vhost: str, partition: str, group: str, single_active: bool = False, from_replica: bool = False
    ) -> Self: ...

@final
class OpenGet:
    vhost: str
    queue: str
    def __new__(cls, *, vhost: str, queue: str) -> Self: ...

@final
class OpenSettle:
    vhost: str
    queue: str
    def __new__(cls, *, vhost: str, queue: str) -> Self: ...

@final
class OpenStage:
    """Rows are to be staged for a target, or a staged batch is to be decided: answered with `admit_stage`."""

    vhost: str
    stage: str
    stream: str
    exchange: str
    routing_key: str
    def __new__(cls, *, vhost: str, stage: str, stream: str, exchange: str, routing_key: str) -> Self: ...

@final
class ReadArchive:
    """A piece of a stream's archive, the offsets from `first` up to `end`: answered with `answer`."""

    vhost: str
    partition: str
    first: int
    end: int
    columns: list[str] | None
    key_is: bytes | None
    routing_key_is: bytes | None
    header_is: HeaderIs | None
    skip_unreadable: bool
    def __new__(cls, *, vhost: str, partition: str, first: int, end: int, columns: Sequence[str] | None = None, key_is: bytes | None = None, routing_key_is: bytes | None = None, header_is: HeaderIs | None = None, skip_unreadable: bool = False) -> Self: ...

@final
class HeaderIs:
    """A condition: the message has a header of that name with that value."""

    name: bytes
    value: bytes
    def __new__(cls, *, name: bytes, value: bytes) -> Self: ...

@final
class DescribeStreams:
    """The partitions of streams, for a reader that plans: answered with `describe`.

    With `waits` the caller then waits for messages, and is asked about again after changes.
    """

    vhost: str
    streams: list[str]
    at_timestamp_ms: int | None
    waits: bool
    def __new__(cls, *, vhost: str, streams: Sequence[str], at_timestamp_ms: int | None = None, waits: bool = False) -> Self: ...

@final
class StreamPartition:
    """A partition of a stream; `at_timestamp` is the first offset at the time that was asked for.

    `archived` is None where nothing can be archived. `archive_error` says why messages that were archived cannot be read.
    `partition_count` is the declared one, None for a single queue and for a stream that was made by hand.
    """

    stream: str
    name: str
    queue_id: int
    at_timestamp: int | None
    archived: ArchivedRuns | None
    archive_error: str | None
    partition_count: int | None
    def __new__(
        cls,
        *,
        stream: str,
        name: str,
        queue_id: int,
        at_timestamp: int | None = None,
        archived: ArchivedRuns | None = None,
        archive_error: str | None = None,
        partition_count: int | None = None,
    ) -> Self: ...

@final
class ArchivedRuns:
    """What the archive has of a partition below an offset: ranges of offsets that have messages, and about their bytes."""

    below: int
    runs: list[OffsetRun]
    bytes: int
    def __new__(cls, *, below: int, runs: Sequence[OffsetRun], bytes: int) -> Self: ...

@final
class OffsetRun:
    """Offsets from `first` up to `end` (exclusive) that all have messages."""

    first: int
    end: int
    def __new__(cls, *, first: int, end: int) -> Self: ...

@final
class Enter:
    """A request is larger than an unauthenticated client may send: answered with `admit`."""

    def __new__(cls) -> Self: ...

@final
class Renew:
    """The client shows newer credentials of the same user: answered with `admit`."""

    def __new__(cls) -> Self: ...

@final
class NamesUser:
    """Whether the certificate of a client that has not logged in names a user: answered with `admit`, or refused."""

    def __new__(cls) -> Self: ...

@final
class FindLeader:
    """Which other broker leads a virtual host that a connection has entered: answered with `found_leader`.

    The broker `known`, if it is not empty, was the last answer, and cannot be reached. Again, the connection is relayed to
    it, and goes on there unless that is refused.
    """

    vhost: str
    known: str
    def __new__(cls, *, vhost: str, known: str) -> Self: ...

@final
class EndQueues:
    """The client closes its connection: answered with `admit` when its exclusive queues are deleted."""

    def __new__(cls) -> Self: ...

@final
class Disconnected:
    """The connection ended. There is no answer."""

    def __new__(cls) -> Self: ...

@final
class ExchangeDeclare:
    """A client declares an exchange: answered with `changed`, like the other questions about the topology.

    Arguments are a field table of AMQP 0-9-1 without its length.
    """

    vhost: str
    name: str
    kind: str
    passive: bool
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: bytes
    def __new__(cls, *, vhost: str, name: str, kind: str, passive: bool = False, durable: bool = False, auto_delete: bool = False, internal: bool = False, arguments: bytes) -> Self: ...

@final
class ExchangeDelete:
    """A client deletes an exchange."""

    vhost: str
    name: str
    if_unused: bool
    def __new__(cls, *, vhost: str, name: str, if_unused: bool = False) -> Self: ...

@final
class QueueDeclare:
    """A client declares a queue; an empty name asks for one that the broker makes."""

    vhost: str
    name: str
    passive: bool
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: bytes
    def __new__(cls, *, vhost: str, name: str, passive: bool = False, durable: bool = False, exclusive: bool = False, auto_delete: bool = False, arguments: bytes) -> Self: ...

@final
class QueueDelete:
    """A client deletes a queue."""

    vhost: str
    name: str
    if_unused: bool
    if_empty: bool
    def __new__(cls, *, vhost: str, name: str, if_unused: bool = False, if_empty: bool = False) -> Self: ...

@final
class QueuePurge:
    """A client deletes the ready messages of a queue."""

    vhost: str
    name: str
    def __new__(cls, *, vhost: str, name: str) -> Self: ...

@final
class BindingChange:
    """A client binds a queue or an exchange to an exchange, or unbinds it."""

    vhost: str
    source: str
    destination: str
    to_exchange: bool
    routing_key: str
    arguments: bytes
    unbind: bool
    def __new__(cls, *, vhost: str, source: str, destination: str, to_exchange: bool = False, routing_key: str, arguments: bytes, unbind: bool = False) -> Self: ...

@final
class QueueUnused:
    """An auto-delete queue lost its last consumer. There is no answer."""

    vhost: str
    queue: str
    queue_id: int
    def __new__(cls, *, vhost: str, queue: str, queue_id: int) -> Self: ...

@final
class Call:
    """A request of the listener that Python decides; the client waits for the answer.

    The names in it are the client's; an empty virtual host is the default one. With `again` the stream is open already and
    continues if it is admitted.
    """

    request: UnaryCall | OpenPublish | PermitExchange | PermitUserId | PermitKeys | OpenConsume | OpenRead | OpenGet | OpenSettle | OpenStage | ReadArchive | DescribeStreams | Enter | Renew | NamesUser | FindLeader | EndQueues | ExchangeDeclare | ExchangeDelete | QueueDeclare | QueueDelete | QueuePurge | BindingChange | Disconnected | QueueUnused
    protocol: str
    authorization: str
    certificate: bytes
    peer: str
    connection: int
    again: bool
    def answer(self, payload: bytes) -> None: ...
    def admit(
        self, vhost: str, queue_id: int = 0, user: str = ..., by_key: bool = False, replica: Replica | None = None
    ) -> None:
        """Admit the user. `by_key` says that each routing key of an exchange has to be permitted besides.

        With a `replica` the stream is read from it, though another broker leads.
        """
    def found_leader(self, leader: str | None = None) -> None:
        """Answer with the broker that leads; None when the client is to be served here."""
    def permit_keys(self, permitted: Sequence[bool]) -> None:
        """Answer for each of the keys."""
    def describe(self, vhost: str, user: str, partitions: Sequence[StreamPartition]) -> None:
        """Answer with the partitions of the streams."""
    def admit_stage(self, vhost: str, queue_id: int, user: str, *, exchange: str, routing_key: str) -> None:
        """Answer with the stage's queue and its target."""
    def changed(self, name: str, message_count: int = 0, consumer_count: int = 0) -> None:
        """Answer a change of the topology: with a queue's name, and its numbers of messages and consumers."""
    def refuse_kind(self, kind: str, message: str, details: bytes = ...) -> None:
        """Refuse with the name of a kind; `details` is what the protocol adds. Raises ValueError for an unknown kind."""
    def refuse(self, code: int, message: str, details: bytes = ...) -> None:
        """Refuse with a gRPC status code; `details` is a serialised google.rpc.Status."""

@final
class Tls:
    """Certificates that a listener serves, as PEM; `named` are for clients that ask for a host by name.

    Raises ValueError naming the file that cannot be used.
    """

    def __new__(
        cls,
        chain: bytes,
        key: bytes,
        *,
        client_authorities: bytes | None = None,
        client_required: bool = False,
        client_users: bool = False,
        only_13: bool = False,
        named: Sequence[NamedCertificate] = ...,
    ) -> Self: ...

@final
class OpenConsumer:
    """A consumer that is open; `prefetch` is the latest. It is not `active` while another one of its queue is instead."""

    connection: int
    user: str
    vhost: str
    queue: str
    consumer_tag: str
    prefetch: int
    auto_ack: bool
    exclusive: bool
    priority: int
    active: bool
    def __new__(cls, *, connection: int, user: str, vhost: str, queue: str, consumer_tag: str, prefetch: int, auto_ack: bool, exclusive: bool, priority: int = 0, active: bool = True) -> Self: ...

@final
class Server:
    """The listeners for gRPC and, where they have a place, for AMQP 0-9-1, on threads of their own.

    It queues the calls that it cannot decide for `take`, and makes `wake_fd` readable.
    """

    def __new__(cls, engine: Engine, *, address: str, threads: int, message_bytes_max: int, buffer_bytes_max: int, descriptors: bytes, calls_max: int, connections_max: int, streams_max: int, first_request_ms: int, proxies: Sequence[str] = ..., tls: Tls | None = None, amqp: str | None = None, amqp_socket: PathLike[str] | None = None, amqp_web: str | None = None, amqp_web_origins: Sequence[str] = ...) -> Self: ...
    address: str
    amqp_address: str | None
    amqp_web_address: str | None
    wake_fd: int
    def take(self) -> list[Call]: ...
    def serving(self, serving: bool) -> None:
        """Set the status that the health service reports."""
    def set_tls(self, tls: Tls) -> None:
        """Use certificates for connections from now on; a plaintext listener stays one."""
    def forget(self, vhost: str | None = None) -> None:
        """Make publishers of a virtual host, or of all, ask again before their next batch, because the topology changed."""

    def recheck(self, user: str | None = None, vhost: str | None = None) -> None:
        """Make open streams ask again whether they may go on: those of one user or of all, in one virtual host or in all."""

    def recheck_connection(self, connection: int) -> None:
        """Make the open streams of one connection ask again whether they may go on: a token of it changed or ended."""

    def metrics(self) -> dict[str, float]:
        """Return the budget of memory for requests and responses, and how often clients met it, by names of metrics."""

    def set_limits(self, name: str, is_user: bool, limits: UsageLimits) -> None:
        """Replace the limits of a user or a virtual host."""

    def consumers(self) -> list[OpenConsumer]:
        """Return the open consumers, oldest first."""

    def origin_of(self, connection: int) -> RelayOrigin | None:
        """Return whose exclusive queues a relayed connection may use: the number of its broker, and its number there."""

    def close_connection(self, connection: int) -> bool:
        """Close a connection at once; return whether there is one of this number."""

    def stop(self, grace_ms: int) -> None:
        """Send GOAWAY, then wait for the streams to end, at most `grace_ms` (blocking, without the GIL)."""

# ---------------------------------------------------------------- the replicas of a cluster's shards

@final
class PeerTls:
    """Certificates as PEM for the connections between brokers. `server_name` is the name that all of them have."""

    authority: str
    certificate: str
    key: str
    server_name: str | None
    def __new__(cls, *, authority: str, certificate: str, key: str, server_name: str | None = None) -> Self: ...

@final
class ReplicaHolder:
    """A replica, and the number of the broker that has it."""

    replica: str
    broker: int
    def __new__(cls, *, replica: str, broker: int) -> Self: ...

@final
class ShardState:
    """The record of a shard, with the numbers of brokers. A replica's id has 32 hexadecimal digits."""

    epoch: int
    leader: int
    leader_replica: str
    leader_boot: int
    in_sync: list[str]
    replicas: list[ReplicaHolder]
    min_in_sync: int
    def __new__(cls, *, epoch: int, leader: int, leader_replica: str, leader_boot: int, in_sync: Sequence[str], replicas: Sequence[ReplicaHolder], min_in_sync: int) -> Self: ...

@final
class HeardLeader:
    """The number of the broker that leads an epoch, as its messages say."""

    epoch: int
    broker: int
    def __new__(cls, *, epoch: int, broker: int) -> Self: ...

@final
class ReplicaRole:
    """A leader has an epoch, a halted replica a reason, and a follower neither."""

    epoch: int | None
    appends: bool
    delivers: bool
    halted: str | None
    halt: str | None
    """Which reason it is: `coordinator`, `committed` or `disk`."""
    follows: HeardLeader | None
    """The leader that a follower has heard, which the record may show later."""
    def __new__(cls, *, epoch: int | None = None, appends: bool = False, delivers: bool = False, halted: str | None = None, halt: str | None = None, follows: HeardLeader | None = None) -> Self: ...

@final
class ReplicaStanding:
    """The role of a replica and the length of its log, of the same moment. Everything below `committed` is committed.

    `promised` is the highest epoch that it has promised, and `log_epoch` that of its newest record.
    """

    role: ReplicaRole
    committed: int
    end: int
    promised: int
    log_epoch: int
    def __new__(cls, *, role: ReplicaRole, committed: int, end: int, promised: int = 0, log_epoch: int = 0) -> Self: ...

@final
class ReplicaIdentity:
    """The replica that a folder has, and the highest epoch that it has promised."""

    replica: str
    promised: int
    def __new__(cls, *, replica: str, promised: int) -> Self: ...

@final
class RelayOrigin:
    """The connection of a client that a broker relays: the broker's number, and that of the connection there."""

    broker: int
    connection: int
    def __new__(cls, *, broker: int, connection: int) -> Self: ...

@final
class ReplicaPosition:
    replica: str
    position: int
    def __new__(cls, *, replica: str, position: int) -> Self: ...

@final
class ShardProgress:
    """How far the replicas of a shard are, as its leader knows it at one moment. Everything below `committed` is committed.

    Replicas that have acknowledged nothing in this epoch are left out.
    """

    epoch: int
    end: int
    committed: int
    acknowledged: list[ReplicaPosition]
    def __new__(cls, *, epoch: int, end: int, committed: int, acknowledged: Sequence[ReplicaPosition]) -> Self: ...

@final
class LogEntry:
    """A committed record up to a position. Records of the log itself have no content."""

    until: int
    content: bytes | None
    def __new__(cls, *, until: int, content: bytes | None = None) -> Self: ...

@final
class RoleChanged:
    shard: bytes
    role: ReplicaRole
    def __new__(cls, *, shard: bytes, role: ReplicaRole) -> Self: ...

@final
class RecordsCommitted:
    """Everything below a position is committed and can be read."""

    shard: bytes
    below: int
    def __new__(cls, *, shard: bytes, below: int) -> Self: ...

@final
class AppendEnded:
    """An append is committed, or its outcome is unknown because the replica leads no longer."""

    shard: bytes
    token: int
    is_committed: bool
    def __new__(cls, *, shard: bytes, token: int, is_committed: bool) -> Self: ...

@final
class ReplicaFailed:
    """The log failed, and the replica halts."""

    shard: bytes
    reason: str
    def __new__(cls, *, shard: bytes, reason: str) -> Self: ...

@final
class LogReplaced:
    """The log was replaced by a copy of the leader's."""

    shard: bytes
    def __new__(cls, *, shard: bytes) -> Self: ...

@final
class NodeNotice:
    """A line for the broker's log."""

    text: str
    def __new__(cls, *, text: str) -> Self: ...

@final
class PeerChanged:
    """The connection to a broker is up, or it broke."""

    broker: int
    is_connected: bool
    def __new__(cls, *, broker: int, is_connected: bool) -> Self: ...

@final
class PeerMessage:
    """Another broker sent this by `ClusterNode.send`."""

    broker: int
    shard: bytes
    content: bytes
    def __new__(cls, *, broker: int, shard: bytes, content: bytes) -> Self: ...

@final
class ReadAsked:
    """A replica asks for the record of its shard, past all caches: answered with `ClusterNode.read`."""

    shard: bytes
    read: int
    def __new__(cls, *, shard: bytes, read: int) -> Self: ...

@final
class ChangeAsked:
    """A replica asks to replace the record of its shard if that has the version `base`.

    It is answered with `ClusterNode.changed`, `conflicted` or `unanswered`.
    """

    shard: bytes
    change: int
    base: int
    record: ShardState
    def __new__(cls, *, shard: bytes, change: int, base: int, record: ShardState) -> Self: ...

@final
class ClusterNode:
    """The replicas of this broker, its connections to other brokers, and their threads.

    It queues reports for `take`, and makes `wake_fd` readable. Calls may wait for a disk, without the GIL.
    """

    def __new__(
        cls,
        *,
        number: int,
        cluster: bytes,
        boot: int,
        address: str,
        secrets: Sequence[str],
        frame_bytes_max: int,
        tls: PeerTls | None = None,
        disk_threads: int = 2,
        scrub_every_s: float | None = None,
    ) -> Self:
        """Start the threads and listen at an address. Raises InvalidArgumentError, and OSError for the address.

        What lies on the disks is checked as often as `scrub_every_s`; never without.

        The id of a cluster and that of a shard have 16 bytes. `boot` is another number after each start.
        """
    address: str
    wake_fd: int
    def take(self) -> list[RoleChanged | RecordsCommitted | AppendEnded | ReplicaFailed | LogReplaced | NodeNotice | PeerChanged | PeerMessage | ReadAsked | ChangeAsked]:
        """Return the reports since the last call, oldest first."""
    used_protocol: int
    """The newest version of the protocol between brokers that all of them are known to have."""
    def set_peer(self, broker: int, address: str, name: str) -> None:
        """Say where a broker is, as host:port, and how it is named."""
    def forget_peer(self, broker: int) -> None:
        """Say that a broker is not of the cluster any more."""
    def relay_clients(self, server: Server) -> None:
        """Relay the clients of the listeners to the brokers that lead, and serve the clients that others relay."""
    def metrics(self) -> dict[str, float]:
        """Return the relays from and to this broker and the bytes that they carried, by names of metrics."""
    def set_secrets(self, secrets: Sequence[str]) -> None:
        """Show the first secret of the cluster on new connections, and accept all of them."""
    def open(
        self,
        shard: bytes,
        directory: str,
        *,
        new_replica: str,
        segment_bytes_min: int,
        segment_bytes_max: int,
        page_cache_lost: bool,
        disk_free_bytes_min: int = 0,
        has_queues: bool = True,
        order: int = 0,
    ) -> Replica:
        """Open the replica in a directory; `new_replica` becomes the identity of a blank one. Raises StorageError.

        The node folds logs with queues by itself. Shards with the same `order` are mostly led by one broker.
        """
    def close_replica(self, shard: bytes) -> None:
        """Close the replica of a shard for good: its files may be deleted then."""
    def send(self, broker: int, shard: bytes, content: bytes) -> bool:
        """Send a message to a broker; return whether it is connected. The message may be lost with the connection."""
    def read(self, shard: bytes, read: int | None, record: ShardState | None, version: int = 0) -> None:
        """Answer a question for the record, or say without its number that a record was watched."""
    def changed(self, shard: bytes, change: int, version: int) -> None: ...
    def conflicted(self, shard: bytes, change: int) -> None:
        """Answer that the record has another version than the change expects."""
    def unanswered(self, shard: bytes, change: int) -> None:
        """Answer that the outcome of a change is unknown."""
    def session(self, broker: int, is_alive: bool) -> None:
        """Say that the session of a broker has ended, or that it is alive again."""
    def set_yields(self, yields: bool) -> None:
        """Say whether the replicas leave it to other brokers to lead, as far as they do so soon.

        Those that are opened later hear of it, too.
        """
    def close(self) -> None:
        """End the connections and threads (blocking, without the GIL). Logs keep all that was committed."""

@final
class Replica:
    """This broker's replica of a shard, whose log has contents in their order. Calls may wait for a disk, without the GIL."""

    replica: str
    """Its identity, which is that of its disk."""
    record: ShardState | None
    standing: ReplicaStanding
    progress: ShardProgress | None
    """None where this replica does not lead."""
    def append(self, epoch: int, token: int, contents: Sequence[bytes]) -> int | None:
        """Append contents as the leader of an epoch, and return the position after them; None where another one leads.

        AppendEnded with the token says how it ended. Without contents, the append only proves that this replica leads.
        Raises StorageError, after which some of the contents may be appended, and TypeError.
        """
    def read(self, after: int, bytes_max: int) -> list[LogEntry] | None:
        """Return committed records after a position, as many as have so many bytes, and at least one. Raises StorageError.

        The list is empty when all were read. None: contents from there on were removed.
        """
    def settle(self, epoch: int, token: int, until: int) -> int | None:
        """Append, as the leader of an epoch, that no broker needs contents up to a position; return as `append` does. Raises StorageError."""
    def fold(self, checkpoint: int) -> bool:
        """Remove segments that have nothing but settled contents, if none is settled above a position. Raises StorageError.

        Returns whether there was something to do, so call it again. `checkpoint` is up to where this broker needs no log.
        """
    def lead(self, engine: Engine, name: str, epoch: int) -> Shard | None:
        """Open the queues of the shard in the engine for the term of an epoch; None where it is over, or may not yet begin.

        They have messages only: queues, exchanges and routes follow, and `complete`, as after `Engine.open_shard`. They
        close when the term ends. Raises StorageError.
        """
    def lead_further(self, engine: Engine, vhost: Shard, number: int, epoch: int) -> bool:
        """Do the same for a further shard of a vhost; `vhost` is its shard 0, opened before.

        Returns False where its term is over, or may not yet begin. The term ends for all shards when it ends for one.
        `Shard.count_shards` follows once all are open. Raises StorageError.
        """
    def begin_backup(self) -> ReplicaBackup:
        """Fix a copy of what is committed, also where this replica follows. Raises StorageError."""
    def list_checksums(self, after: int, until: int | None = None) -> bytes:
        """Return the committed records of one segment from a position on up to another, for `compare_lists`. Raises StorageError.

        The first 8 bytes are the position, little-endian, up to which the list has everything that is there; `after` itself at the end.
        """
    def may_be_read(self) -> bool:
        """Return whether streams may be read here: it is in sync, and has heard its leader lately."""
    def end_readers(self, queue_id: int, reason: str) -> None:
        """End the readers of a stream that was deleted."""
    def place(self, brokers: Sequence[int]) -> None:
        """Say which brokers are to have a replica. While this one leads, it brings in those that lack one, and takes the others out.

        With none it leaves them as they are.
        """
    def hand_over(self, replica: str) -> None:
        """Let another replica that is in sync lead."""

def inspect_log(directory: str, *, verify: bool, shard: int = 0) -> list[SegmentReport]:
    """Read the log of a stopped virtual host; with `verify` check every byte. Raises StorageError.

    A segment of another shard than this one is reported.
    """

@final
class ReplicaBackup:
    """A copy of the log of a replica. Until it is written or closed the log is not compacted and no file is removed."""

    position: int
    def write(self, directory: str) -> None:
        """Write the copy to an empty directory (blocking, without the GIL). Raises StorageError."""
    def open(self) -> OpenReplicaBackup:
        """Open the copy to be read instead (blocking, without the GIL). Raises StorageError."""
    def close(self) -> None:
        """Drop the copy; after `write` or `open` this does nothing."""

@final
class OpenReplicaBackup:
    """The copy of a replica's log to be read. Until it is closed none of its files is removed."""

    @property
    def files(self) -> list[BackupFile]: ...
    def read(self, file: int, at: int, length: int) -> bytes:
        """Return a part of a file, at most up to its end (blocking, without the GIL). Raises StorageError."""
    def close(self) -> None:
        """Release the files, once a read has ended (blocking, without the GIL)."""

def prepare_replica(
    directory: str, *, log: bytes, replica: str, jump: int, raises_sequences: bool, unix_ms: int
) -> int:
    """Make the log of a backup that of a new replica, and return the epoch that it ends with. Raises StorageError."""

@final
class ComparedLists:
    """Two lists of records, compared as far as both go, up to `until`. `count` records are in both."""

    @property
    def until(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def differing(self) -> int: ...
    @property
    def named(self) -> list[DifferingRecord]:
        """The first records that differ."""

@final
class DifferingRecord:
    """A record with the checksums that this broker and the other one have of it."""

    @property
    def position(self) -> int: ...
    @property
    def own(self) -> int: ...
    @property
    def other(self) -> int: ...

def compare_lists(after: int, own: bytes, other: bytes) -> ComparedLists:
    """Compare a list of `Replica.list_checksums` with one that another broker sent, both from a position on.

    Raises ValueError for bytes that are no such list, or that go further than the own one.
    """

def read_replica(directory: str) -> ReplicaIdentity | None:
    """Return the replica that a folder has, without opening its log; None where there is none. Raises StorageError."""

def repair_log(directory: str, *, segment_bytes_min: int, segment_bytes_max: int, shard: int = 0) -> LogRepair:
    """Settle messages that cannot be read as dropped, and rename files without a readable header. Raises StorageError.

    The virtual host is stopped, and nothing else may use its log meanwhile.
    """

# ---------------------------------------------------------------- the client's side

@final
class ChannelTls:
    """PEM texts, empty for none, and the name that the broker's certificate must be for.

    Without `authorities` the machine's own count.
    """

    authorities: str
    certificate: str
    key: str
    server_name: str
    def __new__(cls, *, authorities: str, certificate: str, key: str, server_name: str) -> Self: ...

@final
class OutcomeRange:
    """Outcome of the messages from `first` to `last`. Code 0 is confirmed, -1 returned, others a gRPC code."""

    first: int
    last: int
    code: int
    reason: str
    def __new__(cls, *, first: int, last: int, code: int, reason: str) -> Self: ...

@final
class Channel:
    """One HTTP/2 connection to a broker, made at the first use and again after it broke.

    `targets` are addresses of the broker, each host:port. The next one is tried when no connection can be made. With
    `follows`, calls go to the leader of `vhost` where a broker of a cluster names it.
    """

    def __new__(cls, targets: Sequence[str], authorization: str, *, connect_timeout_ms: int, message_bytes_max: int, tls: ChannelTls | None = None, follows: bool = True, vhost: str = "/") -> Self: ...
    def call(self, method: str, payload: bytes, timeout_ms: int, is_repeatable: bool) -> bytes:
        """Make a unary call and return the answer (blocking, without the GIL). Raises RpcError.

        One that is repeatable is made again when its connection breaks.

        `method` is a full path such as "/penstock.v1.AdminService/Bind".
        """
    def close(self) -> None: ...

@final
class Publisher:
    """A publish stream that batches waiting messages and sends at once when nothing is under way.

    After a broken connection it connects again (with back-off) and sends the messages without an outcome again. Numbers
    continue across connections. With a `producer` messages may have sequences that count up; 0 is none, and of many the
    argument is the first one's. With `numbers_itself` it numbers them itself, and passes over the number of a refused one.
    """

    def __new__(
        cls,
        channel: Channel,
        vhost: str,
        level: int,
        *,
        in_flight_max: int,
        batch_max: int,
        reconnect: bool,
        producer: str = ...,
        numbers_itself: bool = False,
    ) -> Self: ...
    wake_fd: int
    def publish(self, body: bytes, exchange: str = "", routing_key: str = "", properties: bytes | None = None, mandatory: bool = False, key: bytes | None = None, sequence: int = 0) -> int:
        """Queue one message and return its number, or 0 when in_flight_max are without an outcome.

        `properties` is a serialised penstock.v1.Properties. Raises RpcError when the stream ended for good (refused
        credentials, no such virtual host).
        """
    def publish_many(self, bodies: Sequence[bytes], exchange: str = "", routing_key: str = "", properties: bytes | None = None, mandatory: bool = False, key: bytes | None = None, sequence: int = 0) -> int:
        """Queue many messages, waiting (without the GIL) while in_flight_max are without an outcome; return the last number."""
    def take(self) -> list[OutcomeRange]:
        """Return the outcomes since the last call."""
    def wait(self, timeout_ms: int) -> list[OutcomeRange]:
        """Wait (without the GIL) for outcomes and return them; none at the time limit."""
    def flush(self, timeout_ms: int) -> bool:
        """Wait until every number has an outcome, which `take` still returns."""
    @property
    def lost(self) -> str | None:
        """Why there is no connection, while another one is tried."""
    @property
    def is_ended(self) -> bool:
        """Whether the stream ended for good."""
    def close(self, timeout_ms: int = ...) -> None:
        """Send the waiting messages, and wait no longer than this for the broker to end the stream."""

@final
class Delivery:
    """One message, as the application gets it: what the client's Message promises.

    `properties` is the result of the consumer's `read_properties`, asked for once, and `headers` is its attribute of that
    name. Settling twice does nothing, nor does settling a message of an earlier connection.
    """

    @property
    def body(self) -> bytes: ...
    @property
    def sequence(self) -> int: ...
    @property
    def exchange(self) -> str: ...
    @property
    def routing_key(self) -> str: ...
    @property
    def redelivered(self) -> bool: ...
    @property
    def delivery_count(self) -> int: ...
    @property
    def stored_at_ms(self) -> int: ...
    @property
    def properties(self) -> Any: ...
    @property
    def headers(self) -> Any: ...
    def ack(self) -> None: ...
    def nack(self, requeue: bool = True) -> None: ...
    def reject(self) -> None: ...

@final
class Consumer:
    """A consume stream that connects again (with back-off) after a broken connection.

    `read_properties` gets a serialised penstock.v1.Properties, or None for a message without any.
    """

    def __new__(cls, channel: Channel, vhost: str, queue: str, *, prefetch: int, auto_ack: bool, exclusive: bool, consumer_tag: str, reconnect: bool, read_properties: Callable[[bytes | None], Any], priority: int = 0, consumer_timeout_ms: int = 0) -> Self: ...
    wake_fd: int
    consumer_tag: str
    def take(self, count_max: int) -> list[Delivery]:
        """Return at most count_max arrived messages. Raises RpcError when the stream ended for good (cancelled, refused)."""
    def wait(self, count_max: int, timeout_ms: int) -> list[Delivery]:
        """Wait (without the GIL) for messages and return them; none at the time limit."""
    def settle(self, first: int, last: int, outcome: int) -> None:
        """Add a range to the next settlement: 1 ack, 2 reject, 3 requeue."""
    def flow(self, prefetch: int) -> None: ...
    def flush(self) -> None:
        """Send the gathered settlements; they also go by themselves, when a quarter of the prefetch waits or 1 ms passed."""
    def begin_close(self) -> None:
        """Send the gathered settlements and let the stream end, without waiting for it."""
    def close(self, timeout_ms: int = ...) -> None:
        """Do as `begin_close`, and wait no longer than this for the broker; unacked messages return to the queue."""

@final
class StreamDelivery:
    """One message of a stream, as the application gets it: what the client's StreamMessage promises."""

    @property
    def body(self) -> bytes: ...
    @property
    def offset(self) -> int: ...
    @property
    def partition(self) -> str: ...
    @property
    def exchange(self) -> str: ...
    @property
    def routing_key(self) -> str: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def stored_at(self) -> datetime: ...
    @property
    def stored_at_ms(self) -> int: ...
    @property
    def properties(self) -> Any: ...
    @property
    def headers(self) -> Any: ...

@final
class Reader:
    """A read stream of one partition that connects again (with back-off) after a broken connection.

    It continues behind the last message that came. `start` is a serialised penstock.v1.Start, `credit` how many responses
    may be under way or wait, and `read_properties` as for a Consumer. With `from_replica` it reads at the channel's targets,
    whichever broker leads.
    """

    def __new__(cls, channel: Channel, vhost: str, partition: str, *, start: bytes, end: int | None, credit: int, group: str, single_active: bool, reconnect: bool, read_properties: Callable[[bytes | None], Any], from_replica: bool = False) -> Self: ...
    partition: str
    wake_fd: int
    is_active: bool
    is_finished: bool
    def take(self, count_max: int) -> list[StreamDelivery]:
        """Return at most count_max arrived messages. Raises RpcError when none is left and the stream ended for good."""
    def store(self, offset: int) -> None:
        """Note that the group has processed everything up to this offset; it is sent later."""
    def close(self) -> None:
        """Send the gathered offsets and end the stream."""

def perf_throughput(options: str) -> str:
    """Run the load generator (blocking, without the GIL): JSON in, JSON out; see broker/rust/client/src/perf.rs."""

def perf_latency(options: str) -> str: ...
def perf_amqp(options: str) -> str:
    """Run the load generator for AMQP, as perf_throughput does; see broker/rust/client/src/perf/amqp/mod.rs."""

def perf_interrupt() -> None:
    """End a perf_amqp of another thread early: it returns its figures, and deletes its queues."""

