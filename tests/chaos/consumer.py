"""A consumer that goes on through failovers, and enters each delivery in the history."""

import time
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, Final

import grpc

from chaos.history import History, message_of
from chaos.leader import Leader, open_channel
from chaos.mark import Mark
from penstock.v1 import message_pb2
from penstock.v1 import messaging_pb2 as wire
from penstock.v1 import messaging_pb2_grpc as stubs

__all__ = ["Consumer"]

PREFETCH: Final = 400


class Consumer(Thread):
    """Acknowledges all messages of one queue, until it is stopped."""

    def __init__(
        self, leader: Leader, addresses: dict[str, str], queue: str, history: History, credentials: Any
    ) -> None:
        super().__init__(name=f"consumer {leader.vhost} {queue}", daemon=True)
        self.errors: dict[str, int] = {}
        self.last_at = time.monotonic()
        """When a message came last."""
        self._leader = leader
        self._addresses = addresses
        self._queue = queue
        self._history = history
        self._credentials = credentials
        self._stopping = Event()
        self._call: Any = None
        self._broker = ""
        self._opened_at = 0.0
        """When the stream was opened."""
        self._marks: list[tuple[Mark, dict[str, int]]] = []
        """Each with the next numbers of producers at its moment."""

    def mark(self) -> Mark:
        """Have the time measured from now until a delivery of a later stream, or of a message that is sent later.

        Others may have been on their way already.
        """
        mark = Mark(time.monotonic())
        numbers = {name: producer.next_number for name, producer in self._history.producers.items()}
        self._marks = [*(each for each in self._marks if each[0].seconds is None), (mark, numbers)]
        return mark

    def stop(self) -> None:
        self._stopping.set()
        if self._call is not None:
            self._call.cancel()

    def check_leader(self) -> None:
        """End a stream at a broker that does not lead any more. Another thread calls it."""
        current, call = self._leader.current, self._call
        if call is not None and current not in (None, self._broker):
            call.cancel()

    def run(self) -> None:
        while not self._stopping.is_set():
            broker = self._leader.find(self._stopping)
            if broker is not None:
                self._consume_at(broker)

    def _consume_at(self, broker: str) -> None:
        requests: SimpleQueue[wire.ConsumeRequest | None] = SimpleQueue()
        opening = wire.ConsumeOpen(vhost=self._leader.vhost, queue=self._queue, prefetch=PREFETCH)
        requests.put(wire.ConsumeRequest(open=opening))
        with open_channel(self._addresses[broker]) as channel:
            stub = stubs.MessagingServiceStub(channel)
            self._broker = broker
            self._opened_at = time.monotonic()
            self._call = stub.Consume(iter(requests.get, None), metadata=self._credentials)
            try:
                for response in self._call:
                    self._take(response.deliveries.deliveries, requests)
                    if self._stopping.is_set():
                        break
            except grpc.RpcError as error:
                name = f"{error.code().name}: {error.details()}"
                self.errors[name] = self.errors.get(name, 0) + 1
                if error.code() != grpc.StatusCode.CANCELLED:
                    self._leader.lost(broker)
                    self._stopping.wait(0.05)
            finally:
                self._call = None
                requests.put(None)

    def _take(self, deliveries: Any, requests: "SimpleQueue[wire.ConsumeRequest | None]") -> None:
        if not deliveries:
            return
        self.last_at = time.monotonic()
        ranges = []
        for each in deliveries:
            self._history.deliver(self._queue, each.body, is_redelivered=each.redelivered)
            self._history.acknowledge(self._queue, each.body)
            self._measure(each.body)
            ranges.append(message_pb2.Range(first=each.sequence, last=each.sequence))
        requests.put(wire.ConsumeRequest(settle=wire.Settlement(ranges=ranges, outcome=wire.OUTCOME_ACK)))

    def _measure(self, content: bytes) -> None:
        """Enter the time in the marks that are older than the stream, or than the message."""
        for mark, numbers in self._marks:
            if mark.seconds is None and (self._opened_at > mark.at or _is_later(content, numbers)):
                mark.reach(self.last_at)


def _is_later(content: bytes, numbers: dict[str, int]) -> bool:
    message = message_of(content)
    return message is not None and message[1] >= numbers.get(message[0], 0)
