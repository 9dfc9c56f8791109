"""A publisher that goes on through failovers, and enters each send and each answer in the history."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Condition, Event, Thread
from typing import Any, Final

import grpc

from chaos.history import Producer, body
from chaos.leader import Leader, open_channel
from chaos.mark import Mark
from penstock.v1 import messaging_pb2 as wire
from penstock.v1 import messaging_pb2_grpc as stubs

__all__ = ["Publisher", "Setup"]

BATCH: Final = 20
IN_FLIGHT_MAX: Final = 400
FULL: Final[int] = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
STALL_S: Final = 1.0
"""Without an answer for this time it looks for another leader."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Where a publisher and its fellows publish."""

    leader: Leader
    addresses: dict[str, str]
    exchange: str
    credentials: Any
    rate: float
    """Messages a second; 0 for as many as are confirmed."""
    logs: int
    """How many logs the queues of the exchange are in."""


class Publisher(Thread):
    """Publishes until it is stopped. One with a name sends what has no answer again; its broker stores it once."""

    def __init__(self, setup: Setup, producer: Producer) -> None:
        super().__init__(name=f"publisher {producer.name}", daemon=True)
        self.producer = producer
        self.errors: dict[str, int] = {}
        """The errors that ended streams, and how often each did."""
        self._setup = setup
        self._stopping = Event()
        self._changed = Condition()
        self._marks: list[Mark] = []
        self._call: Any = None
        self._sent: deque[tuple[int, float]] = deque()
        """Batches that are not confirmed: the number after each, and the time at which it was sent."""
        self._open_count = 0
        self._resume_at = 0
        """The first number of a named producer that has no answer."""
        self._due = 0.0

    def mark(self) -> Mark:
        """Have the time measured from now until a message that is sent later is confirmed."""
        mark = Mark(time.monotonic())
        self._marks = [*(each for each in self._marks if each.seconds is None), mark]
        return mark

    def stop(self) -> None:
        """Send nothing more; a last answer is waited for until the stream stalls."""
        self._stopping.set()

    def check_stall(self) -> None:
        """End a stream without answers. Another thread calls it, because this one may wait in a call."""
        sent, call = self._sent, self._call
        try:
            oldest = sent[0][1]
        except IndexError:
            return
        if call is not None and time.monotonic() - oldest > STALL_S:
            call.cancel()

    def run(self) -> None:
        while not self._stopping.is_set():
            broker = self._setup.leader.find(self._stopping)
            if broker is not None:
                self._publish_at(broker)

    def _publish_at(self, broker: str) -> None:
        producer = self.producer
        first = self._resume_at if producer.is_deduplicated else producer.next_number
        is_over = Event()
        self._sent.clear()
        self._open_count = 0
        with open_channel(self._setup.addresses[broker]) as channel:
            stub = stubs.MessagingServiceStub(channel)
            self._call = stub.Publish(self._requests(first, is_over), metadata=self._setup.credentials)
            try:
                for response in self._call:
                    if not self._take(first, response):
                        self._call.cancel()
                        break
            except grpc.RpcError as error:
                name = f"{error.code().name}: {error.details()}"
                self.errors[name] = self.errors.get(name, 0) + 1
            finally:
                self._call = None
                is_over.set()
                with self._changed:
                    self._changed.notify_all()
                    producer.lose_answers(range(first, producer.next_number))
                self._sent.clear()
                self._setup.leader.lost(broker)

    def _requests(self, first: int, is_over: Event) -> Iterator[wire.PublishRequest]:
        setup, producer = self._setup, self.producer
        name = producer.name if producer.is_deduplicated else ""
        opening = wire.PublishOpen(vhost=setup.leader.vhost, durability=wire.DURABILITY_DISK, producer=name)
        yield wire.PublishRequest(open=opening)
        number = first
        while not is_over.is_set():
            self._wait_until_due(is_over)
            with self._changed:
                while self._open_count > IN_FLIGHT_MAX - BATCH and not is_over.is_set():
                    self._changed.wait(timeout=1)
                if is_over.is_set() or (self._stopping.is_set() and number >= producer.next_number):
                    return
                numbers = self._enter(number)
                self._sent.append((numbers.stop, time.monotonic()))
                self._open_count += len(numbers)
            number = numbers.stop
            messages = [wire.Message(body=body(producer.name, each)) for each in numbers]
            sequence = numbers[0] + 1 if producer.is_deduplicated else 0
            batch = wire.PublishBatch(exchange=setup.exchange, messages=messages, producer_sequence=sequence)
            yield wire.PublishRequest(batch=batch)

    def _enter(self, number: int) -> range:
        """Enter the next batch in the history: messages that are sent again, or new ones."""
        again = range(number, min(number + BATCH, self.producer.next_number))
        if again:
            self.producer.send_again(again)
            return again
        return self.producer.send(BATCH)

    def _wait_until_due(self, is_over: Event) -> None:
        if self._setup.rate:
            now = time.monotonic()
            self._due = max(self._due, now - 1.0) + BATCH / self._setup.rate
            is_over.wait(max(0.0, self._due - now))

    def _take(self, first: int, response: wire.PublishResponse) -> bool:
        """Enter answers; return whether the stream can go on."""
        now, producer = time.monotonic(), self.producer
        with self._changed:
            for span in response.confirmed:
                # A stream's numbers begin at 1.
                numbers = range(first + span.first - 1, first + span.last)
                producer.confirm(numbers)
                self._open_count -= len(numbers)
                self._measure(numbers.stop, now)
            for rejected in response.rejected:
                numbers = range(first + rejected.first - 1, first + rejected.last)
                # A full disk is the one reason to refuse a message that another log has stored.
                is_in_part = rejected.code == FULL and self._setup.logs > 1
                (producer.fail_in_part if is_in_part else producer.fail)(numbers)
                self.errors[rejected.reason] = self.errors.get(rejected.reason, 0) + 1
            while self._resume_at < producer.next_number and producer.is_confirmed(self._resume_at):
                self._resume_at += 1
            self._changed.notify_all()
        return not response.rejected

    def _measure(self, below: int, now: float) -> None:
        """Drop the batches that are answered, and enter the time in the marks that are older than the last of them."""
        sent_at = 0.0
        while self._sent and self._sent[0][0] <= below:
            sent_at = self._sent.popleft()[1]
        for mark in self._marks:
            if mark.seconds is None and sent_at > mark.at:
                mark.reach(now)
