"""The parts of the model of replication: rules, log entries, messages, the coordinator's record, and a replica."""

from dataclasses import dataclass, field
from enum import Enum

ReplicaId = int
Position = int


class Rule(Enum):
    """The rules of the protocol, each with what happens without it."""

    PROMISE = "followers accept lower epochs"
    SHRINK_COUNTS_WHEN_DECIDED = "a pending shrink already counts"
    EXPAND_COUNTS_WHEN_PROPOSED = "a pending expand does not count yet"
    SEAT_IS_THE_DISK = "a blank disk keeps its replica's id"
    BOOT_IS_AN_EPOCH = "a restarted leader resumes its epoch"
    EPOCH_START = "entries are committed before the epoch's first one"
    CUT_BY_EPOCH = "a follower cuts its log to its high watermark"
    ACKNOWLEDGE_SYNCED = "entries are acknowledged before they are synced, and a crash keeps the seat"
    ACKNOWLEDGE_VERIFIED = "the length of the log is acknowledged, not what was compared"
    UNKNOWN_STAYS_PENDING = "a read ends a change whose outcome is unknown"
    SET_BY_VERSION = "a change of the record compares its epoch, not its version"
    FLOOR = "the in-sync set shrinks below its minimum"
    LEAVES_UNCOUNTED = "the disk of a replica that left is deleted while a leader counts what it acknowledged"
    DESTRUCTION_WAITS = "destructive entries take effect before they are committed"


class Violation(Exception):
    """The protocol broke a promise."""


@dataclass(frozen=True, slots=True)
class Entry:
    epoch: int
    number: int
    destroys: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """The state of the shard that the coordinator stores."""

    epoch: int
    leader: tuple[int, int]
    """Node and boot."""
    in_sync: frozenset[ReplicaId]
    version: int


@dataclass(frozen=True, slots=True)
class Change:
    """A request to the coordinator: a new in-sync set, and for an election a new leader."""

    node: int
    boot: int
    epoch: int
    version: int
    in_sync: frozenset[ReplicaId]
    is_election: bool


@dataclass(frozen=True, slots=True)
class Append:
    to: int
    epoch: int
    after: Position
    epoch_before: int
    entries: tuple[Entry, ...]
    high_watermark: Position


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    to: int
    epoch: int
    replica: ReplicaId
    position: Position


@dataclass(frozen=True, slots=True)
class Pending:
    """A change of the in-sync set whose outcome the leader does not know."""

    is_expand: bool
    in_sync: frozenset[ReplicaId]
    version: int


@dataclass(slots=True)
class Replica:
    node: int
    id: ReplicaId
    log: list[Entry] = field(default_factory=lambda: [Entry(1, 0)])
    synced: Position = 1
    promised: int = 1
    epoch: int = 1
    boot: int = 1
    is_leader: bool = False
    verified: Position = 1
    """So far the log equals that of the leader of `epoch`."""
    known_committed: Position = 0
    executed: dict[Position, Entry] = field(default_factory=dict)
    """Destructive entries that took effect here."""
    # Of a leader:
    high_watermark: Position = 0
    start: Position = 1
    in_sync: frozenset[ReplicaId] = frozenset()
    version: int = 0
    pending: Pending | None = None
    acknowledged: dict[ReplicaId, Position] = field(default_factory=dict)

    def follow(self) -> None:
        self.is_leader = False
        self.verified = 0

    def continues(self, message: Append) -> bool:
        after = message.after
        return after <= len(self.log) and (not after or self.log[after - 1].epoch == message.epoch_before)

    def cut(self, position: Position) -> None:
        del self.log[position:]
        self.synced = min(self.synced, position)
