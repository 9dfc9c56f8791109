"""Load on a cluster: a publisher with confirms and a consumer that follow the leader of a virtual host.

They use the bare wire, so that the outcome of each message is known exactly. Messages without an outcome are published
again.
"""

import base64
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, Final

import grpc
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped, unused-ignore]

from penstock.v1 import message_pb2
from penstock.v1 import messaging_pb2 as wire
from penstock.v1 import messaging_pb2_grpc as stubs

CREDENTIALS: Final = (("authorization", "Basic " + base64.b64encode(b"guest:guest").decode()),)
BATCH: Final = 20
IN_FLIGHT_MAX: Final = 100
PREFETCH: Final = 200
PAUSE_SECONDS: Final = 0.005
UNAVAILABLE: Final = 14


class LeaderGoneError(Exception):
    """The broker answered that it leads no longer, and which one does, if it knows."""

    def __init__(self, address: str = "") -> None:
        super().__init__(address)
        self.address = address


class Follower(Thread):
    """Works at one broker after another, each time at the one that is said to lead."""

    def __init__(self, name: str, addresses: Sequence[str]) -> None:
        super().__init__(name=name, daemon=True)
        self.failures: list[str] = []
        self._addresses = list(addresses)
        self._channels = {address: grpc.insecure_channel(address) for address in addresses}
        self._is_over = Event()

    def run(self) -> None:
        address = self._addresses[0]
        try:
            while not self._is_over.is_set():
                try:
                    self.work(stubs.MessagingServiceStub(self._channels[address]))
                except LeaderGoneError as gone:
                    address = self._next(address, gone.address)
                except grpc.RpcError as error:
                    if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                        raise
                    address = self._next(address, leader_in(error))
        except Exception as error:  # noqa: BLE001 (an error in this thread must fail the test)
            self.failures.append(repr(error))
        finally:
            for channel in self._channels.values():
                channel.close()

    def work(self, stub: stubs.MessagingServiceStub) -> None:
        """Work at a broker as long as it leads. Publisher and Consumer define it."""
        raise NotImplementedError

    def end(self) -> None:
        self._is_over.set()
        self.join()

    def _next(self, address: str, leader: str) -> str:
        self._is_over.wait(PAUSE_SECONDS)
        if leader in self._channels and leader != address:
            return leader
        return self._addresses[(self._addresses.index(address) + 1) % len(self._addresses)]


class Publisher(Follower):
    """Publishes the numbers from 0 on; `confirmed` are those that a broker confirmed."""

    def __init__(self, addresses: Sequence[str], queue: str) -> None:
        super().__init__("publisher", addresses)
        self.confirmed: set[int] = set()
        self.next_number = 0
        self.confirmed_at: list[float] = []
        self._queue = queue
        self._open: list[int] = []
        """Numbers that were published and have no outcome, in their order."""

    def work(self, stub: stubs.MessagingServiceStub) -> None:
        requests: SimpleQueue[wire.PublishRequest | None] = SimpleQueue()
        requests.put(wire.PublishRequest(open=wire.PublishOpen()))
        sent: list[int] = []
        self._send(requests, sent, self._open)
        try:
            for response in stub.Publish(iter(requests.get, None), metadata=CREDENTIALS):
                self._take(response, sent)
                if self._is_over.is_set():
                    return
                self._is_over.wait(PAUSE_SECONDS)  # the brokers and the operator's commands need some of the processor
                while len(self._open) <= IN_FLIGHT_MAX - BATCH:
                    numbers = list(range(self.next_number, self.next_number + BATCH))
                    self.next_number += BATCH
                    self._open += numbers
                    self._send(requests, sent, numbers)
        finally:
            requests.put(None)

    def pauses(self) -> list[float]:
        """Return the times between two confirms in seconds, the longest first."""
        at = self.confirmed_at
        return sorted((later - earlier for earlier, later in pairwise(at)), reverse=True)

    def _send(self, requests: SimpleQueue[wire.PublishRequest | None], sent: list[int], numbers: list[int]) -> None:
        """Send what has no outcome yet, or one message more: a stream says nothing before it has one."""
        if not numbers:
            numbers = [self.next_number]
            self.next_number += 1
            self._open += numbers
        sent += numbers
        messages = [wire.Message(body=b"%d" % number) for number in numbers]
        requests.put(wire.PublishRequest(batch=wire.PublishBatch(routing_key=self._queue, messages=messages)))

    def _take(self, response: wire.PublishResponse, sent: list[int]) -> None:
        for span in response.confirmed:
            self.confirmed.update(sent[span.first - 1 : span.last])
            self.confirmed_at.append(time.monotonic())
        self._open = [number for number in self._open if number not in self.confirmed]
        for rejected in response.rejected:
            if rejected.code != UNAVAILABLE:
                self.failures.append(str(rejected))
            raise LeaderGoneError


class Consumer(Follower):
    """Acknowledges what it gets; `received` are the numbers, in the order in which they came."""

    def __init__(self, addresses: Sequence[str], queue: str) -> None:
        super().__init__("consumer", addresses)
        self.received: list[int] = []
        self._queue = queue
        self._call: Any = None

    def work(self, stub: stubs.MessagingServiceStub) -> None:
        requests: SimpleQueue[wire.ConsumeRequest | None] = SimpleQueue()
        requests.put(wire.ConsumeRequest(open=wire.ConsumeOpen(queue=self._queue, prefetch=PREFETCH)))
        self._call = stub.Consume(iter(requests.get, None), metadata=CREDENTIALS)
        try:
            for response in self._call:
                if response.HasField("cancelled"):
                    raise LeaderGoneError
                self._settle(requests, response.deliveries.deliveries)
        finally:
            requests.put(None)

    def end(self) -> None:
        self._is_over.set()
        self._call.cancel()
        self.join()

    def _settle(self, requests: SimpleQueue[wire.ConsumeRequest | None], deliveries: Sequence[wire.Delivery]) -> None:
        if deliveries:
            ranges = [message_pb2.Range(first=each.sequence, last=each.sequence) for each in deliveries]
            requests.put(wire.ConsumeRequest(settle=wire.Settlement(ranges=ranges, outcome=wire.OUTCOME_ACK)))
            self.received += [int(each.body) for each in deliveries]


def leader_in(error: grpc.RpcError) -> str:
    """Return the address of the leader that a refusal names."""
    return next((found for found in _leaders(error)), "")


def _leaders(error: Any) -> Iterator[str]:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info) and info.metadata.get("grpc"):
                    yield info.metadata["grpc"]
