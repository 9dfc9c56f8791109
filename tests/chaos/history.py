"""The history of messages under faults, and its verdict in linear time.

Checking a history of arbitrary operations takes exponential time, because any order of concurrent ones may be the true
one. It does not here. Each message has a producer and a number that no other message has, so every delivery names the
one send that it comes from, and nothing has to be guessed. Queues share no state that a client can see but the sends,
so each is checked by itself. Then the rules are statements about one message, or about two neighbours of one producer
in the deliveries of one queue: a pass over each list decides them all.

A send without an answer may take effect at any later time, or never: it may be absent, and it is left out of the order.
It does no I/O, and has no clock.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

__all__ = ["Findings", "History", "Outcome", "Producer", "QueueVerdict", "body", "message_of"]

SAMPLES: Final = 5
"""A verdict names so many messages of each kind."""
BODY_BYTES: Final = 64


class Outcome(IntEnum):
    """The answer to a send."""

    OPEN = 0
    CONFIRMED = 1
    FAILED = 2
    """Refused: it must not have been stored."""
    UNKNOWN = 3
    """The connection ended before the answer."""


class Step(IntEnum):
    """A step of a queue's consumer with one message."""

    DELIVERED = 0
    REDELIVERED = 1
    """Delivered with a flag."""
    ACKNOWLEDGED = 2


_STEPS: Final = len(Step)
"""An entry of a queue is the number of a message times this, and a step: there are millions of them."""


@dataclass
class Producer:
    """The sends of one producer, numbered from 0 in the order sent.

    One that is deduplicated sends a message again under its number, and the broker stores it once. Others may do so,
    too: then one delivery more is expected without a flag.
    """

    name: str
    is_deduplicated: bool = False
    outcomes: bytearray = field(default_factory=bytearray)
    again: dict[int, int] = field(default_factory=dict)
    unanswered: set[int] = field(default_factory=set)
    """Numbers that had an unknown outcome at any time, or failed in a part of their queues."""

    @property
    def next_number(self) -> int:
        return len(self.outcomes)

    def send(self, count: int) -> range:
        """Enter sends before they are made; return their numbers."""
        numbers = range(self.next_number, self.next_number + count)
        self.outcomes.extend(bytes(count))
        return numbers

    def send_again(self, numbers: Iterable[int]) -> None:
        """Enter that messages of unknown outcome are sent again."""
        for number in numbers:
            self.again[number] = self.again.get(number, 0) + 1
            if not self.is_confirmed(number):
                self.outcomes[number] = Outcome.OPEN

    def confirm(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.outcomes[number] = Outcome.CONFIRMED

    def fail(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if self.outcomes[number] != Outcome.CONFIRMED:
                self.outcomes[number] = Outcome.FAILED

    def fail_in_part(self, numbers: range) -> None:
        """Enter that the log of one queue had no space for them, when the logs of others may have them."""
        self.fail(numbers)
        self.unanswered.update(numbers)

    def lose_answers(self, numbers: Iterable[int]) -> None:
        """Enter that the answers to these sends did not come, unless they did."""
        for number in numbers:
            if self.outcomes[number] == Outcome.OPEN:
                self.outcomes[number] = Outcome.UNKNOWN
                self.unanswered.add(number)

    def is_confirmed(self, number: int) -> bool:
        return self.outcomes[number] == Outcome.CONFIRMED

    def count(self, outcome: Outcome) -> int:
        return self.outcomes.count(outcome)

    def may_come(self, number: int) -> bool:
        """Return whether the message may be in a queue.

        One that failed may, if an earlier send of it is open, or it failed in a part of its queues.
        """
        if number >= self.next_number:
            return False
        return self.outcomes[number] != Outcome.FAILED or number in self.unanswered

    def copies_max(self, number: int) -> int:
        """Return how often the message may be delivered without a flag."""
        return 1 if self.is_deduplicated else 1 + self.again.get(number, 0)

    def is_ordered(self, number: int) -> bool:
        """Return whether the send had taken effect before the next one of its producer was confirmed."""
        return self.is_deduplicated or number not in self.unanswered


@dataclass
class Findings:
    """Messages that break a rule: how many, and the first of them."""

    count: int = 0
    samples: list[str] = field(default_factory=list)

    def add(self, sample: str) -> None:
        self.count += 1
        if len(self.samples) < SAMPLES:
            self.samples.append(sample)


@dataclass
class QueueVerdict:
    """The findings about one queue. A correct broker loses, duplicates and misplaces nothing, and invents nothing."""

    queue: str
    delivered: int = 0
    redelivered: int = 0
    returned: int = 0
    """Redelivered after an acknowledgement, which no one confirms: the broker may not have got it."""
    lost: Findings = field(default_factory=Findings)
    """Confirmed, and never delivered."""
    unexpected: Findings = field(default_factory=Findings)
    """Delivered, and never sent, or refused."""
    duplicates: Findings = field(default_factory=Findings)
    """Delivered again without a flag."""
    misplaced: Findings = field(default_factory=Findings)
    """Delivered without a flag after a later message of its producer."""

    def broken(self) -> Iterator[tuple[str, Findings]]:
        for name in ("lost", "unexpected", "duplicates", "misplaced"):
            found: Findings = getattr(self, name)
            if found.count:
                yield name, found


class History:
    """Sends of all producers, and deliveries by queue.

    Each producer is entered by one thread, and each queue by another one. Invariant: a send is entered before it is
    made, so that a delivery of what was not entered is one of what was not sent.
    """

    def __init__(self, producers: Iterable[Producer], queues: Iterable[str]) -> None:
        """Make an empty history; every message goes to all queues."""
        self.producers = {producer.name: producer for producer in producers}
        self._entries = {queue: {name: array("q") for name in self.producers} for queue in queues}
        self._foreign: dict[str, Findings] = {queue: Findings() for queue in self._entries}

    @property
    def queues(self) -> list[str]:
        return list(self._entries)

    def deliver(self, queue: str, content: bytes, *, is_redelivered: bool) -> None:
        """Enter one delivery, in the order of the queue's consumer."""
        if not self._enter(queue, content, Step.REDELIVERED if is_redelivered else Step.DELIVERED):
            self._foreign[queue].add(repr(content[:BODY_BYTES]))

    def acknowledge(self, queue: str, content: bytes) -> None:
        """Enter an acknowledgement before it is sent."""
        self._enter(queue, content, Step.ACKNOWLEDGED)

    def verdicts(self) -> list[QueueVerdict]:
        """Return the verdict of each queue, once it is empty."""
        return [self._verdict(queue) for queue in self.queues]

    def _enter(self, queue: str, content: bytes, step: Step) -> bool:
        """Return whether the bytes are those of a producer's message."""
        message = message_of(content)
        if message is None or message[0] not in self.producers:
            return False
        name, number = message
        self._entries[queue][name].append(number * _STEPS + step)
        return True

    def _verdict(self, queue: str) -> QueueVerdict:
        verdict = QueueVerdict(queue, unexpected=self._foreign[queue])
        for producer in self.producers.values():
            _check(verdict, producer, self._entries[queue][producer.name])
        return verdict


def _check(verdict: QueueVerdict, producer: Producer, entries: Iterable[int]) -> None:
    """Enter what is wrong with the deliveries of one producer's messages, by one step for each of them."""
    seen, acknowledged = bytearray(producer.next_number), bytearray(producer.next_number)
    unflagged = _Unflagged(verdict, producer)
    for entry in entries:
        number, step = divmod(entry, _STEPS)
        if step == Step.ACKNOWLEDGED:
            if number < producer.next_number:
                acknowledged[number] = 1
            continue
        verdict.delivered += 1
        if not producer.may_come(number):
            verdict.unexpected.add(f"{producer.name} {number}")
            continue
        seen[number] = 1
        if step == Step.REDELIVERED:
            verdict.redelivered += 1
            verdict.returned += acknowledged[number]
        else:
            unflagged.check(number)
    for number in _confirmed(producer):
        if not seen[number]:
            verdict.lost.add(f"{producer.name} {number}")


class _Unflagged:
    """Deliveries without a flag: how often each message came, and the highest number that came."""

    def __init__(self, verdict: QueueVerdict, producer: Producer) -> None:
        self._verdict = verdict
        self._producer = producer
        self._counts = bytearray(producer.next_number)
        self._highest = -1

    def check(self, number: int) -> None:
        sample = f"{self._producer.name} {number}"
        self._counts[number] = min(255, self._counts[number] + 1)
        if self._counts[number] > self._producer.copies_max(number):
            self._verdict.duplicates.add(sample)
        elif self._producer.is_ordered(number):
            if number < self._highest:
                self._verdict.misplaced.add(f"{sample} after {self._highest}")
            self._highest = max(self._highest, number)


def _confirmed(producer: Producer) -> Iterator[int]:
    return (number for number, outcome in enumerate(producer.outcomes) if outcome == Outcome.CONFIRMED)


def body(producer: str, number: int) -> bytes:
    """Return the bytes of a message: its name, repeated, so that every byte is checked."""
    name = f"{producer} {number};".encode()
    size = max(BODY_BYTES, len(name))
    return (name * (size // len(name) + 1))[:size]


def message_of(content: bytes) -> tuple[str, int] | None:
    """Return producer and number of a body; None for bytes that are no body."""
    name, _, number = content.partition(b";")[0].decode(errors="replace").partition(" ")
    if not number.isdecimal() or content != body(name, int(number)):
        return None
    return name, int(number)
