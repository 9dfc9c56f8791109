"""Questions that brokers ask each other about the shards that one of them leads, as bytes.

A broker of a version before a question refuses it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.cluster.meta.codec import Codec

SHARDS_MAX: Final = 1_000
"""Shards of one question, so that the answer fits into a message."""


@dataclass(frozen=True, slots=True)
class ProgressQuestion:
    """How far the replicas of some shards are; at most SHARDS_MAX of them."""

    shards: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShardReport:
    """A shard as its leader knows it: where its log ends, and up to where its other replicas have acknowledged it.

    Replicas that have acknowledged nothing in this epoch are left out.
    """

    shard: str
    epoch: int
    end: int
    acknowledged: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ProgressAnswer:
    """Reports of those shards that the asked broker leads."""

    shards: tuple[ShardReport, ...]


class HandOver(Enum):
    """How the hand-over of a shard to another broker ended."""

    DONE = "another broker leads"
    NOT_LEADING = "the asked broker does not lead"
    NO_HEIR = "no replica that may lead is in sync and connected"
    NOT_TAKEN = "no other broker has taken over in time; one still may, for a moment"


@dataclass(frozen=True, slots=True)
class HandOverQuestion:
    """Let the replica of a broker lead a shard that the asked broker leads."""

    shard: str
    to: str


@dataclass(frozen=True, slots=True)
class HandOverAnswer:
    outcome: HandOver


@dataclass(frozen=True, slots=True)
class StandingQuestion:
    """The replica that a broker has of a shard, whether that leads or not."""

    shard: str
    vhost: str


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """A replica as its broker knows it; of one whose log is not open only the promise is known.

    `log_epoch` is the epoch of its newest record. `leads` is the epoch that it leads, and `halt` why it has halted.
    """

    replica: str
    is_open: bool
    promised: int
    log_epoch: int = 0
    end: int = 0
    committed: int = 0
    leads: int | None = None
    halt: str | None = None


@dataclass(frozen=True, slots=True)
class StandingAnswer:
    """The replica of the asked broker; None where it has none."""

    report: ReplicaReport | None


@dataclass(frozen=True, slots=True)
class CountsQuestion:
    """The counts of some queues of a virtual host that the asked broker leads; at most those of a page."""

    vhost: str
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CountsReport:
    """The counts of a queue, in the order of the fields of `QueueCounts`."""

    queue: str
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CountsAnswer:
    """Reports of the queues that there are."""

    queues: tuple[CountsReport, ...]


@dataclass(frozen=True, slots=True)
class TotalsQuestion:
    """The messages in some virtual hosts that the asked broker leads; at most SHARDS_MAX of them."""

    vhosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TotalsReport:
    vhost: str
    ready_count: int
    unacked_count: int


@dataclass(frozen=True, slots=True)
class TotalsAnswer:
    """Reports of those virtual hosts that the asked broker leads."""

    vhosts: tuple[TotalsReport, ...]


@dataclass(frozen=True, slots=True)
class DifferencesQuestion:
    """The differences that the asked broker has found at its replicas of some shards; at most SHARDS_MAX of them."""

    shards: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DifferencesReport:
    """A replica that differs from that of its leader, in so many records; `first` is the position of one of them."""

    shard: str
    replica: str
    leader: str
    records: int
    first: int


@dataclass(frozen=True, slots=True)
class DifferencesAnswer:
    shards: tuple[DifferencesReport, ...]


PROGRESS_QUESTIONS: Final[Codec[ProgressQuestion]] = Codec(ProgressQuestion)
PROGRESS_ANSWERS: Final[Codec[ProgressAnswer]] = Codec(ProgressAnswer)
HAND_OVER_QUESTIONS: Final[Codec[HandOverQuestion]] = Codec(HandOverQuestion)
HAND_OVER_ANSWERS: Final[Codec[HandOverAnswer]] = Codec(HandOverAnswer)
STANDING_QUESTIONS: Final[Codec[StandingQuestion]] = Codec(StandingQuestion)
STANDING_ANSWERS: Final[Codec[StandingAnswer]] = Codec(StandingAnswer)
COUNTS_QUESTIONS: Final[Codec[CountsQuestion]] = Codec(CountsQuestion)
COUNTS_ANSWERS: Final[Codec[CountsAnswer]] = Codec(CountsAnswer)
TOTALS_QUESTIONS: Final[Codec[TotalsQuestion]] = Codec(TotalsQuestion)
TOTALS_ANSWERS: Final[Codec[TotalsAnswer]] = Codec(TotalsAnswer)
DIFFERENCES_QUESTIONS: Final[Codec[DifferencesQuestion]] = Codec(DifferencesQuestion)
DIFFERENCES_ANSWERS: Final[Codec[DifferencesAnswer]] = Codec(DifferencesAnswer)
