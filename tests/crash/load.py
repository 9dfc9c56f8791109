"""Load for a broker that will be killed: one publisher and one consumer, on streams that end with it and never resume.

The wire is used bare (grpcio and the generated messages), so that nothing is sent twice and it is known to the message
what was confirmed and what was acknowledged.
"""

import base64
from collections.abc import Iterator
from queue import SimpleQueue
from threading import Condition, Event, Thread
from typing import Any

import grpc

from penstock.v1 import message_pb2
from penstock.v1 import messaging_pb2 as wire
from penstock.v1 import messaging_pb2_grpc as stubs

CREDENTIALS = (("authorization", "Basic " + base64.b64encode(b"guest:guest").decode()),)
BATCH = 50
IN_FLIGHT_MAX = 1_000
PREFETCH = 500


class Publisher(Thread):
    """Publishes numbers from `first` on until the broker is gone; `confirmed` are those it promised to keep."""

    def __init__(self, channel: grpc.Channel, exchange: str, level: wire.Level, first: int, enough: int) -> None:
        super().__init__(name="publisher")
        self.confirmed: list[int] = []
        self.next_number = first
        self.refusals: list[str] = []
        self._first = first
        self._confirmed_enough = Event()
        self._enough = enough
        self._changed = Condition()
        self._is_over = False
        self._opening = wire.PublishOpen(level=level)
        self._exchange = exchange
        self._stub = stubs.MessagingServiceStub(channel)

    def run(self) -> None:
        try:
            for response in self._stub.Publish(self._requests(), metadata=CREDENTIALS):
                self._take(response)
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                self.refusals.append(str(error))
        finally:
            self._is_over = True
            self._confirmed_enough.set()
            with self._changed:
                self._changed.notify_all()

    def wait(self) -> None:
        """Waits until `enough` messages have been confirmed."""
        assert self._confirmed_enough.wait(timeout=60), f"{len(self.confirmed)} of {self._enough} confirms after 60 s"

    def _requests(self) -> Iterator[wire.PublishRequest]:
        yield wire.PublishRequest(open=self._opening)
        while not self._is_over:
            with self._changed:
                while (
                    self.next_number - self._first - len(self.confirmed) > IN_FLIGHT_MAX - BATCH and not self._is_over
                ):
                    self._changed.wait(timeout=1)
            numbers = range(self.next_number, self.next_number + BATCH)
            self.next_number += BATCH
            messages = [wire.Message(body=b"%d" % number) for number in numbers]
            yield wire.PublishRequest(batch=wire.PublishBatch(exchange=self._exchange, messages=messages))

    def _take(self, response: wire.PublishResponse) -> None:
        # A stream's numbers begin at 1.
        for span in response.confirmed:
            self.confirmed += range(self._first + span.first - 1, self._first + span.last)
        self.refusals += [str(rejected) for rejected in response.rejected]
        with self._changed:
            self._changed.notify_all()
        if len(self.confirmed) >= self._enough:
            self._confirmed_enough.set()


class Consumer(Thread):
    """Takes and acknowledges what comes, in order, until the broker is gone or it is told to end."""

    def __init__(self, channel: grpc.Channel, queue: str) -> None:
        super().__init__(name=f"consumer of {queue}")
        self.delivered: list[int] = []
        self.acknowledged: list[int] = []
        self.failures: list[str] = []
        self._requests: SimpleQueue[wire.ConsumeRequest | None] = SimpleQueue()
        self._requests.put(wire.ConsumeRequest(open=wire.ConsumeOpen(queue=queue, prefetch=PREFETCH)))
        self._arrived = Condition()
        self._stub = stubs.MessagingServiceStub(channel)

    def run(self) -> None:
        try:
            responses: Any = self._stub.Consume(iter(self._requests.get, None), metadata=CREDENTIALS)
            for response in responses:
                self._take(response.deliveries.deliveries)
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                self.failures.append(str(error))
        finally:
            self._requests.put(None)

    def wait_for(self, count: int) -> None:
        with self._arrived:
            arrived = self._arrived.wait_for(lambda: len(self.delivered) >= count, timeout=60)
        assert arrived, f"{len(self.delivered)} of {count} messages after 60 s"

    def end(self) -> None:
        """Closes the sending side: no settlement follows."""
        self._requests.put(None)
        self.join()

    def _take(self, deliveries: Any) -> None:
        if not deliveries:
            return
        numbers = [int(delivery.body) for delivery in deliveries]
        ranges = [message_pb2.Range(first=delivery.sequence, last=delivery.sequence) for delivery in deliveries]
        self.acknowledged += numbers
        self._requests.put(wire.ConsumeRequest(settle=wire.Settlement(ranges=ranges, outcome=wire.OUTCOME_ACK)))
        with self._arrived:
            self.delivered += numbers
            self._arrived.notify_all()
