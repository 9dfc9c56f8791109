"""Load for a broker that will be killed: publishers, consumers and an operator, on streams that never resume.

It uses the bare wire (grpcio and the generated messages), so that nothing is sent twice and the state of every message
and change is known exactly.
"""

import base64
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Condition, Event, Thread
from typing import Any

import grpc

from penstock.v1 import admin_pb2 as admin
from penstock.v1 import admin_pb2_grpc, message_pb2
from penstock.v1 import messaging_pb2 as wire
from penstock.v1 import messaging_pb2_grpc as stubs

CREDENTIALS = (("authorization", "Basic " + base64.b64encode(b"guest:guest").decode()),)
BATCH = 50
IN_FLIGHT_MAX = 1_000
PREFETCH = 500
# A call fails at once when the broker is gone; a broker that hangs fails the test.
CALL_SECONDS_MAX = 60


def is_gone(error: grpc.RpcError) -> bool:
    """Return whether a call failed because the broker was killed."""
    return error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


class Publisher(Thread):
    """Publishes numbers from `first` on until the broker is gone.

    `exchange_of` selects the exchange of each batch; `confirmed` are the confirmed numbers.
    """

    def __init__(
        self,
        channel: grpc.Channel,
        exchange_of: Callable[[int], str],
        durability: wire.Durability,
        first: int,
        enough: int,
    ) -> None:
        super().__init__(name="publisher")
        self.confirmed: list[int] = []
        self.next_number = first
        self.refusals: list[str] = []
        self._first = first
        self._confirmed_enough = Event()
        self._enough = enough
        self._changed = Condition()
        self._is_over = False
        self._opening = wire.PublishOpen(durability=durability)
        self._exchange_of = exchange_of
        self._stub = stubs.MessagingServiceStub(channel)

    def run(self) -> None:
        try:
            for response in self._stub.Publish(self._requests(), metadata=CREDENTIALS):
                self._take(response)
        except grpc.RpcError as error:
            if not is_gone(error):
                self.refusals.append(str(error))
        finally:
            self._is_over = True
            self._confirmed_enough.set()
            with self._changed:
                self._changed.notify_all()

    def wait(self) -> None:
        """Wait until `enough` messages have been confirmed."""
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
            exchange = self._exchange_of(self.next_number)
            self.next_number += BATCH
            messages = [wire.Message(body=b"%d" % number) for number in numbers]
            yield wire.PublishRequest(batch=wire.PublishBatch(exchange=exchange, messages=messages))

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
    """Acknowledges messages in order, until the broker is gone or it is stopped.

    One that `requeues` requeues each once, and one that `rejects` rejects all.
    """

    def __init__(self, channel: grpc.Channel, queue: str, requeues: bool = False, *, rejects: bool = False) -> None:
        super().__init__(name=f"consumer of {queue}")
        self.delivered: list[int] = []
        # In the order sent; None stands for a requeued one.
        self.settled: list[int | None] = []
        self.failures: list[str] = []
        self._requeues = requeues
        self._outcome = wire.OUTCOME_REJECT if rejects else wire.OUTCOME_ACK
        self._requests: SimpleQueue[wire.ConsumeRequest | None] = SimpleQueue()
        self._requests.put(wire.ConsumeRequest(open=wire.ConsumeOpen(queue=queue, prefetch=PREFETCH)))
        self._arrived = Condition()
        self._stub = stubs.MessagingServiceStub(channel)

    @property
    def acknowledged(self) -> list[int]:
        return [number for number in self.settled if number is not None]

    def run(self) -> None:
        try:
            responses: Any = self._stub.Consume(iter(self._requests.get, None), metadata=CREDENTIALS)
            for response in responses:
                self._take(response.deliveries.deliveries)
        except grpc.RpcError as error:
            if not is_gone(error):
                self.failures.append(str(error))
        finally:
            self._requests.put(None)

    def wait_for(self, count: int) -> None:
        with self._arrived:
            arrived = self._arrived.wait_for(lambda: len(self.delivered) >= count, timeout=60)
        assert arrived, f"{len(self.delivered)} of {count} messages after 60 s"

    def end(self) -> None:
        """Close the sending side: no settlement follows."""
        self._requests.put(None)
        self.join()

    def _take(self, deliveries: Any) -> None:
        if not deliveries:
            return
        back = [one for one in deliveries if self._requeues and one.delivery_count == 0]
        done = [one for one in deliveries if not self._requeues or one.delivery_count > 0]
        self._settle(done, self._outcome)
        self._settle(back, wire.OUTCOME_REQUEUE)
        self.settled += [int(one.body) for one in done] + [None] * len(back)
        with self._arrived:
            self.delivered += [int(one.body) for one in deliveries]
            self._arrived.notify_all()

    def _settle(self, deliveries: list[Any], outcome: wire.Outcome) -> None:
        ranges = [message_pb2.Range(first=one.sequence, last=one.sequence) for one in deliveries]
        if ranges:
            self._requests.put(wire.ConsumeRequest(settle=wire.Settlement(ranges=ranges, outcome=outcome)))


class Operator(Thread):
    """Declares queues, binds them, deletes some and purges one, until the broker is gone.

    A change that was requested and not answered may have happened or not.
    """

    def __init__(self, channel: grpc.Channel, prefix: str, exchange: str, purged: str) -> None:
        super().__init__(name="operator")
        self.declares_asked: set[str] = set()
        self.declares_answered: set[str] = set()
        self.deletes_asked: set[str] = set()
        self.deletes_answered: set[str] = set()
        self.purges_answered = 0
        self.failures: list[str] = []
        self._names = (prefix, exchange, purged)
        self._stub = admin_pb2_grpc.AdminServiceStub(channel)
        self._before_purge: Callable[[], None] = lambda: None
        self._after_purge: Callable[[], None] = lambda: None

    def around_purges(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        """Call these before each purge is requested and after it was answered."""
        self._before_purge, self._after_purge = before, after

    def run(self) -> None:
        try:
            number = 0
            while True:
                self._change(number)
                number += 1
        except grpc.RpcError as error:
            if not is_gone(error):
                self.failures.append(str(error))

    def _change(self, number: int) -> None:
        prefix, exchange, purged = self._names
        name = f"{prefix}-{number}"
        self.declares_asked.add(name)
        queue = admin.Queue(name=name, durable=True)
        self._call(self._stub.DeclareQueue, admin.DeclareQueueRequest(queue=queue))
        self.declares_answered.add(name)
        binding = admin.Binding(
            source=exchange, destination_kind=admin.DESTINATION_KIND_QUEUE, destination=name, routing_key=""
        )
        self._call(self._stub.Bind, admin.BindRequest(binding=binding))
        if number % 3 != 2:
            self.deletes_asked.add(name)
            self._call(self._stub.DeleteQueue, admin.DeleteQueueRequest(name=name))
            self.deletes_answered.add(name)
        if number % 8 == 0:
            self._before_purge()
            self._call(self._stub.PurgeQueue, admin.PurgeQueueRequest(name=purged))
            self._after_purge()
            self.purges_answered += 1

    def _call(self, method: Any, request: Any) -> None:
        method(request, metadata=CREDENTIALS, timeout=CALL_SECONDS_MAX)
