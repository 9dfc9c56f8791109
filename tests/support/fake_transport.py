"""A broker in memory behind the client's transport port, sufficient for tests of the client.

It knows the default exchange only, settles at once, and never reconnects. `hold` keeps outcomes back until `release`.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from threading import Condition

from penstock.client.messages import ReceivedMessage
from penstock.client.opening import Options
from penstock.client.pure_publisher import PureOutcome
from penstock.client.sync import Connection
from penstock.client.transport import ConsumerOptions, PublisherOptions, ReaderOptions, StatusError
from penstock.client.uri import Address
from penstock.client.wake import Wake
from penstock.v1 import admin_pb2, message_pb2, messaging_pb2
from support.fake_reader import FakeReader

__all__ = ["FakeBroker", "FakeConsumer", "FakePublisher", "FakeQueue", "FakeTransport", "connect_to"]

INVALID_ARGUMENT, NOT_FOUND = 3, 5
ACK, REJECT, REQUEUE = 1, 2, 3


@dataclass
class Stored:
    sequence: int
    body: bytes
    routing_key: str
    properties: bytes | None
    delivery_count: int = 0


@dataclass
class FakeQueue:
    ready: deque[Stored] = field(default_factory=deque)
    unsettled: dict[int, Stored] = field(default_factory=dict)
    last: int = 0
    delivered: int = 0

    def settle(self, sequence: int, outcome: int) -> None:
        stored = self.unsettled.pop(sequence, None)
        if stored is not None and outcome == REQUEUE:
            stored.delivery_count += 1
            self.ready.append(stored)
            self.ready = deque(sorted(self.ready, key=lambda each: each.sequence))


class FakeBroker:
    """State that all its transports share. `changed` guards it; every call answers `refusal`, if set."""

    def __init__(self) -> None:
        self.changed = Condition()
        self.queues: dict[str, FakeQueue] = {}
        self.calls: list[tuple[str, bytes]] = []
        self.answers: dict[str, Callable[[bytes], bytes]] = {
            "ListVhosts": self._list_vhosts,
            "DeclareQueue": self._declare_queue,
            "ListQueues": self._list_queues,
            "PurgeQueue": self._purge_queue,
            "Get": self._get,
            "Settle": self._settle,
        }
        self.refusal: StatusError | None = None
        self.page_size = 1_000

    def call(self, method: str, payload: bytes) -> bytes:
        with self.changed:
            name = method.rpartition("/")[2]
            self.calls.append((name, payload))
            if self.refusal is not None:
                raise StatusError(*self.refusal.args)
            answer = self.answers.get(name)
            return b"" if answer is None else answer(payload)

    def publish(
        self, body: bytes, exchange: str, key: str, properties: bytes | None, mandatory: bool
    ) -> tuple[int, str]:
        """Return code and reason of the outcome."""
        if exchange:
            return NOT_FOUND, f"no exchange '{exchange}' in vhost '/'; declare it first"
        queue = self.queues.get(key)
        if queue is None:
            return (-1, f"no queue for routing key '{key}'") if mandatory else (0, "")
        queue.last += 1
        queue.ready.append(Stored(queue.last, body, key, properties))
        self.changed.notify_all()
        return 0, ""

    def deliver(self, name: str, auto_ack: bool) -> Stored | None:
        queue = self.queues[name]
        if not queue.ready:
            return None
        stored = queue.ready.popleft()
        queue.delivered += 1
        if not auto_ack:
            queue.unsettled[stored.sequence] = stored
        return stored

    def _list_vhosts(self, payload: bytes) -> bytes:
        return admin_pb2.ListVhostsResponse(vhosts=[admin_pb2.Vhost(name="/")]).SerializeToString()

    def _declare_queue(self, payload: bytes) -> bytes:
        request = admin_pb2.DeclareQueueRequest.FromString(payload)
        name = request.queue.name or "amq.gen-1"
        queue = self.queues.setdefault(name, FakeQueue())
        return admin_pb2.DeclareQueueResponse(name=name, ready_count=len(queue.ready)).SerializeToString()

    def _list_queues(self, payload: bytes) -> bytes:
        request = admin_pb2.ListQueuesRequest.FromString(payload)
        names = sorted(self.queues)
        if request.HasField("name"):
            if request.name not in names:
                raise StatusError(NOT_FOUND, f"no queue '{request.name}' in vhost '/'; declare it first", b"")
            names = [request.name]
        start = int(request.page_token or 0)
        page = names[start : start + self.page_size]
        response = admin_pb2.ListQueuesResponse()
        for name in page:
            queue = self.queues[name]
            response.queues.add(
                name=name,
                durable=True,
                ready_count=len(queue.ready),
                unacked_count=len(queue.unsettled),
                published_count=queue.last,
                delivered_count=queue.delivered,
                settled_count=queue.last - len(queue.ready) - len(queue.unsettled),
            )
        if start + self.page_size < len(names):
            response.next_page_token = str(start + self.page_size)
        return response.SerializeToString()

    def _purge_queue(self, payload: bytes) -> bytes:
        request = admin_pb2.PurgeQueueRequest.FromString(payload)
        queue = self._queue(request.name)
        count = len(queue.ready)
        queue.ready.clear()
        return admin_pb2.PurgeQueueResponse(dropped_count=count).SerializeToString()

    def _get(self, payload: bytes) -> bytes:
        request = messaging_pb2.GetRequest.FromString(payload)
        self._queue(request.queue)
        stored = self.deliver(request.queue, request.auto_ack)
        response = messaging_pb2.GetResponse()
        if stored is not None:
            response.deliveries.append(_delivery(stored))
        return response.SerializeToString()

    def _settle(self, payload: bytes) -> bytes:
        request = messaging_pb2.SettleRequest.FromString(payload)
        queue = self._queue(request.queue)
        for span in request.settlement.ranges:
            for sequence in range(span.first, span.last + 1):
                queue.settle(sequence, request.settlement.outcome)
        return b""

    def _queue(self, name: str) -> FakeQueue:
        if name not in self.queues:
            raise StatusError(NOT_FOUND, f"no queue '{name}' in vhost '/'; declare it first", b"")
        return self.queues[name]


class FakePublisher:
    """Numbers messages as a publish stream does. `release` sends held outcomes in the order requested."""

    def __init__(self, broker: FakeBroker, options: PublisherOptions) -> None:
        self._broker = broker
        self.options = options
        self._wake = Wake()
        self._outcomes: list[PureOutcome] = []
        self._held: dict[int, PureOutcome] = {}
        self._last = 0
        self._settled = 0
        self.keyed: list[tuple[bytes, str, str, bytes | None, int]] = []
        self.is_holding = False
        self.is_closed = False
        self.lost: str | None = None
        self.ended: StatusError | None = None
        self.is_quiet = False
        self.on_held: Callable[[], None] = lambda: None

    @property
    def wake_fd(self) -> int:
        return self._wake.fileno()

    @property
    def is_ended(self) -> bool:
        return self.ended is not None

    def publish(
        self,
        body: bytes,
        exchange: str = "",
        routing_key: str = "",
        properties: bytes | None = None,
        mandatory: bool = False,
        key: bytes | None = None,
        sequence: int = 0,
    ) -> int:
        with self._broker.changed:
            self.keyed.append((body, exchange, routing_key, key, sequence))
            if self.ended is not None:
                raise StatusError(*self.ended.args)
            if len(routing_key) > 255:
                raise StatusError(INVALID_ARGUMENT, f"a routing key has {len(routing_key)} bytes", b"")
            if self._last - self._settled >= self.options.in_flight_max:
                return 0
            self._last += 1
            code, reason = self._broker.publish(body, exchange, routing_key, properties, mandatory)
            self._held[self._last] = PureOutcome(self._last, self._last, code, reason)
            if not self.is_holding:
                self._release(self._last)
            self.on_held()
            return self._last

    def publish_many(
        self,
        bodies: Sequence[bytes],
        exchange: str = "",
        routing_key: str = "",
        properties: bytes | None = None,
        mandatory: bool = False,
        key: bytes | None = None,
        sequence: int = 0,
    ) -> int:
        for place, body in enumerate(bodies):
            number = self.publish(
                body, exchange, routing_key, properties, mandatory, key, sequence + place if sequence else 0
            )
            assert number, "the fake does not wait for room"
        return self._last

    def hold(self) -> None:
        self.is_holding = True

    def release(self, *numbers: int) -> None:
        """Send the outcomes of these, or of all that are held."""
        with self._broker.changed:
            for number in numbers or sorted(self._held):
                self._release(number)

    def end(self, code: int, message: str) -> None:
        """End the stream for good."""
        with self._broker.changed:
            self.ended = StatusError(code, message, b"")
            self._wake.set()
            self._broker.changed.notify_all()

    def end_quietly(self, code: int, message: str) -> None:
        """End as the native publisher does: readable for ever, and only the next message gets the error."""
        self.is_quiet = True
        self.end(code, message)

    def take(self) -> list[PureOutcome]:
        with self._broker.changed:
            return self._take()

    def wait(self, timeout_ms: int) -> list[PureOutcome]:
        with self._broker.changed:
            self._broker.changed.wait_for(lambda: self._outcomes or self.ended, timeout_ms / 1000)
            return self._take()

    def flush(self, timeout_ms: int) -> bool:
        with self._broker.changed:
            return self._broker.changed.wait_for(lambda: not self._held, timeout_ms / 1000)

    def close(self, timeout_ms: int = 0) -> None:
        self.is_closed = True
        self._wake.close()

    def _release(self, number: int) -> None:
        self._outcomes.append(self._held.pop(number))
        self._settled += 1
        self._wake.set()
        self._broker.changed.notify_all()

    def _take(self) -> list[PureOutcome]:
        if self._outcomes or not self.is_quiet:
            self._wake.clear()
        taken, self._outcomes = self._outcomes, []
        if not taken and not self.is_quiet and self.ended is not None:
            raise StatusError(*self.ended.args)
        return taken


class FakeMessage(ReceivedMessage):
    def __init__(self, broker: FakeBroker, queue: str, stored: Stored) -> None:
        super().__init__(_delivery(stored))
        self._broker = broker
        self._queue = queue

    def _settle(self, outcome: int) -> None:
        with self._broker.changed:
            self._broker.queues[self._queue].settle(self.sequence, outcome)


def _delivery(stored: Stored) -> messaging_pb2.Delivery:
    return messaging_pb2.Delivery(
        sequence=stored.sequence,
        body=stored.body,
        routing_key=stored.routing_key,
        properties=message_pb2.Properties.FromString(stored.properties or b""),
        redelivered=stored.delivery_count > 0,
        delivery_count=stored.delivery_count,
        stored_at_ms=1_000,
    )


class FakeConsumer:
    """Delivers ready messages while fewer than prefetch are unsettled; closing it requeues unsettled ones."""

    def __init__(self, broker: FakeBroker, options: ConsumerOptions) -> None:
        self._broker = broker
        self.options = options
        self._wake = Wake()
        self._held: list[int] = []
        self.consumer_tag = options.consumer_tag or "ctag-1"
        self.is_closing = self.is_closed = False
        self.on_close: Callable[[int], None] = lambda _: None
        self.ended: StatusError | None = None
        # Readable once is enough: the watcher takes until nothing is left.
        self._wake.set()

    @property
    def wake_fd(self) -> int:
        return self._wake.fileno()

    def take(self, count_max: int) -> list[FakeMessage]:
        with self._broker.changed:
            return self._take(count_max)

    def wait(self, count_max: int, timeout_ms: int) -> list[FakeMessage]:
        with self._broker.changed:
            self._broker.changed.wait_for(self._is_ready, timeout_ms / 1000)
            return self._take(count_max)

    def flow(self, prefetch: int) -> None:
        raise NotImplementedError

    def flush(self) -> None: ...

    def end(self, code: int, message: str) -> None:
        with self._broker.changed:
            self.ended = StatusError(code, message, b"")
            self._wake.set()
            self._broker.changed.notify_all()

    def arrive(self) -> None:
        """Make the descriptor readable, as a delivery does."""
        self._wake.set()

    def begin_close(self) -> None:
        self.is_closing = True

    def close(self, timeout_ms: int = 0) -> None:
        with self._broker.changed:
            self.on_close(timeout_ms)
            self.is_closed = True
            queue = self._broker.queues.get(self.options.queue)
            for sequence in self._held if queue is not None else ():
                queue.settle(sequence, REQUEUE)  # type: ignore[union-attr]
            self._wake.close()

    def _is_ready(self) -> bool:
        if self.ended is not None:
            return True
        queue = self._broker.queues.get(self.options.queue)
        return queue is None or bool(queue.ready)

    def _take(self, count_max: int) -> list[FakeMessage]:
        self._wake.clear()
        if self.ended is not None:
            raise StatusError(*self.ended.args)
        name = self.options.queue
        if name not in self._broker.queues:
            raise StatusError(NOT_FOUND, f"no queue '{name}' in vhost '/'; declare it first", b"")
        queue = self._broker.queues[name]
        taken: list[FakeMessage] = []
        while len(taken) < count_max and (self.options.auto_ack or len(queue.unsettled) < self.options.prefetch):
            stored = self._broker.deliver(name, self.options.auto_ack)
            if stored is None:
                break
            self._held.append(stored.sequence)
            taken.append(FakeMessage(self._broker, name, stored))
        return taken


class FakeTransport:
    """One connection to a FakeBroker."""

    rpc_error: type[Exception] = StatusError

    def __init__(self, broker: FakeBroker, in_flight_max: int = 65_536) -> None:
        self.broker = broker
        self.publishers: list[FakePublisher] = []
        self.consumers: list[FakeConsumer] = []
        self.readers: list[FakeReader] = []
        self.is_closed = False
        self._in_flight_max = in_flight_max

    def call(self, method: str, payload: bytes, timeout_ms: int, is_repeatable: bool = False) -> bytes:
        return self.broker.call(method, payload)

    def publisher(self, options: PublisherOptions) -> FakePublisher:
        limited = replace(options, in_flight_max=self._in_flight_max)
        self.publishers.append(FakePublisher(self.broker, limited))
        return self.publishers[-1]

    def reader(self, options: ReaderOptions) -> FakeReader:
        self.readers.append(FakeReader(options))
        return self.readers[-1]

    def consumer(self, options: ConsumerOptions) -> FakeConsumer:
        self.consumers.append(FakeConsumer(self.broker, options))
        return self.consumers[-1]

    def close(self) -> None:
        self.is_closed = True


def connect_to(transport: FakeTransport, timeout: float = 5.0, vhost: str = "/") -> Connection:
    """Return a real connection over the fake."""
    return Connection(transport, Options(Address(vhost=vhost), None, None, timeout))
