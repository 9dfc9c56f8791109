"""Questions that brokers ask each other about the shards that one of them leads, as bytes.

A broker of a version before a question refuses it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

from penstock.cluster.calls import Handler, LostCallError, NotCarriedOutError
from penstock.cluster.meta.codec import Codec, CodecError
from penstock.cluster.meta.leader_link import Method
from penstock.cluster.record import BrokerName

Q = TypeVar("Q")
A = TypeVar("A")
ANSWER_S: Final = 2.0
"""Counts and reports are left out of a broker that has not answered after this time."""
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


class Asking(Protocol):
    """The way to other brokers: `meta.member.MetaMember`."""

    async def call(self, broker: BrokerName, method: Method, content: bytes, /) -> bytes:
        """Return the answer of another broker. Raises NotCarriedOutError and LostCallError."""


class ShardCall(Generic[Q, A]):
    """A question and its answer, as bytes of one method."""

    def __init__(self, method: Method, question: type[Q], answer: type[A]) -> None:
        self.method: Final = method
        self._questions: Codec[Q] = Codec(question)
        self._answers: Codec[A] = Codec(answer)

    async def ask(self, member: Asking, broker: BrokerName, question: Q, *, is_patient: bool = False) -> A | None:
        """Return a broker's answer; None if it refuses, is lost, or does not answer in time.

        With `is_patient` the time is that of any call between brokers.
        """
        try:
            async with asyncio.timeout(None if is_patient else ANSWER_S):
                return self._answers.decode(await member.call(broker, self.method, self._questions.encode(question)))
        except (NotCarriedOutError, LostCallError, CodecError, TimeoutError):
            return None

    def handler(self, respond: Callable[[Q], Awaitable[A]]) -> Handler:
        """Return what answers calls of other brokers by `respond`, which may raise NotCarriedOutError."""

        async def handle(content: bytes) -> bytes:
            try:
                question = self._questions.decode(content)
            except CodecError as error:
                raise NotCarriedOutError(str(error)) from error
            return self._answers.encode(await respond(question))

        return handle


PROGRESS: Final = ShardCall(Method.PROGRESS, ProgressQuestion, ProgressAnswer)
HAND_OVER: Final = ShardCall(Method.HAND_OVER, HandOverQuestion, HandOverAnswer)
STANDING: Final = ShardCall(Method.STANDING, StandingQuestion, StandingAnswer)
COUNTS: Final = ShardCall(Method.COUNTS, CountsQuestion, CountsAnswer)
DIFFERENCES: Final = ShardCall(Method.DIFFERENCES, DifferencesQuestion, DifferencesAnswer)
TOTALS: Final = ShardCall(Method.TOTALS, TotalsQuestion, TotalsAnswer)
