"""A connection for threads.

Every verb blocks until the broker answered. Any thread may call any verb at any time.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from types import TracebackType
from typing import Self, TypeVar
from weakref import WeakSet

from google.protobuf.message import DecodeError

from penstock.client.admin import Admin
from penstock.client.bounds import Bounds, drive_within
from penstock.client.closing import Grace
from penstock.client.consuming import Consumption
from penstock.client.errors import BrokerError, ClosedError, PenstockError, from_status
from penstock.client.got import GotMessage, get_call, read_got
from penstock.client.messages import Message
from penstock.client.opening import Options, greet, open_transport
from penstock.client.properties import Properties, encode_properties
from penstock.client.publishing import Publishing, publish_anew
from penstock.client.repeatable import is_repeatable
from penstock.client.stage import Stage
from penstock.client.staging import target_of
from penstock.client.steps import Call, Steps, drive
from penstock.client.stream import Stream
from penstock.client.stream_calls import delete_producer
from penstock.client.stream_hosts import StreamHost
from penstock.client.topology import Topology
from penstock.client.transport import ConsumerOptions, Transport
from penstock.client.values import Value

__all__ = ["Connection", "connect", "connect_within"]

T = TypeVar("T")

DEFAULT_URI = "penstock://guest:guest@127.0.0.1:5680/"


def connect(
    uri: str = DEFAULT_URI,
    *,
    native: bool | None = None,
    durability: str | None = None,
    timeout: float = 30.0,
    deduplicate: bool = False,
) -> "Connection":
    """Connect to a broker and check the credentials.

    With `native` None the native module is used if it is installed. `durability` is what confirms promise: 'os',
    'disk', or None for that of the queue or the message. `timeout` in seconds limits calls and waits for confirms.
    With `deduplicate` a message that is sent again after a broken connection is stored once.
    """
    return _connected(Options.read(uri, native, durability, timeout, deduplicate))


def connect_within(bounds: Bounds, uri: str, *, timeout: float = 30.0) -> "Connection":
    """Connect to a broker that is not trusted. Its verbs raise BrokerError when it answers more than the bounds."""
    try:
        return _connected(replace(Options.read(uri, None, None, timeout), bounds=bounds))
    except DecodeError as error:
        raise BrokerError("the broker's answer cannot be read") from error


def _connected(options: Options) -> "Connection":
    transport = open_transport(options)
    try:
        greet(transport, options)
    except BaseException:
        transport.close()
        raise
    return Connection(transport, options)


class Connection(Topology):
    """A connection of one user to one vhost. Publishers and consumers reconnect by themselves."""

    def __init__(self, transport: Transport, options: Options) -> None:
        self._transport = transport
        self._options = options
        self._vhost = options.address.vhost
        self._lock = Lock()
        self._publishing: Publishing | None = None
        self._consumptions: WeakSet[Consumption] = WeakSet()
        self._streams = StreamHost(transport, options, self._run_while_up, self._publisher)
        self.admin = Admin(self._run, self._vhost)
        self._is_closed = False
        # Once it is being closed.
        self._grace: Grace | None = None
        self._is_hung_up = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End consumers, wait for outstanding confirms, and hang up.

        This waits two seconds at most for a broker that is gone; the log warns of confirms that did not come.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            publishing, self._publishing = self._publishing, None
            grace = self._grace = Grace(self._options.timeout)
        consumptions = list(self._consumptions)
        for consumption in consumptions:
            consumption.begin_close()
        self._streams.close(grace)
        if publishing is not None:
            publishing.close(grace)
        for consumption in consumptions:
            consumption.close(grace)
        self._give_up_names(grace)
        self._is_hung_up = True
        self._transport.close()

    # ------------------------------------------------------------ messages

    def publish(
        self,
        body: bytes,
        exchange: str = "",
        routing_key: str = "",
        properties: Properties | None = None,
        headers: Mapping[str, Value] | None = None,
        mandatory: bool = False,
    ) -> None:
        """Publish a message; return when the broker confirmed it. Threads that publish at once share batches."""
        encoded = encode_properties(properties, headers) if properties is not None or headers else None
        publish_anew(
            self._publisher, lambda publisher: publisher.publish(body, exchange, routing_key, encoded, mandatory)
        )

    def publish_many(
        self,
        bodies: Iterable[bytes],
        exchange: str = "",
        routing_key: str = "",
        properties: Properties | None = None,
        headers: Mapping[str, Value] | None = None,
        mandatory: bool = False,
    ) -> int:
        """Publish many messages; return their number when all are confirmed.

        When all have an outcome, this raises the first refusal.
        """
        encoded = encode_properties(properties, headers)
        return self._publisher().publish_many(bodies, exchange, routing_key, encoded, mandatory)

    def consume(
        self,
        queue: str,
        prefetch: int = 1_000,
        auto_ack: bool = False,
        exclusive: bool = False,
        consumer_tag: str = "",
        idle_timeout: float | None = None,
        priority: int = 0,
        consumer_timeout_ms: int | None = None,
    ) -> Consumption:
        """Return the messages of a queue as they come, to iterate over.

        `idle_timeout` seconds without a message end the iteration. Consumers of a higher `priority` get messages first,
        as long as their prefetch allows. The broker ends a consumer that keeps a message unsettled for longer than
        `consumer_timeout_ms`; without it the queue's limit counts.
        """
        self._check_open()
        options = ConsumerOptions(self._vhost, queue, prefetch, auto_ack, exclusive, consumer_tag)
        port = self._transport.consumer(options.with_order(priority, consumer_timeout_ms))
        consumption = Consumption(port, self._transport.rpc_error, idle_timeout)
        self._consumptions.add(consumption)
        return consumption

    def get(self, queue: str, auto_ack: bool = False) -> Message | None:
        """Return the next ready message, or None. For many messages `consume` is far cheaper."""
        delivery = read_got(self._call(*get_call(self._vhost, queue, auto_ack)))
        if delivery is None:
            return None
        return GotMessage(delivery, self._vhost, queue, auto_ack, self._settle)

    # ------------------------------------------------------------ streams

    def stream(self, name: str) -> Stream:
        """Return a stream, or one of its partitions, to publish to and to read, without asking the broker."""
        self._check_open()
        return Stream(self._streams, name)

    def stage(self, name: str, stream: str = "", exchange: str | None = None, routing_key: str = "") -> Stage:
        """Return a stage, without asking the broker. Rows wait in it until one call publishes them, whole and once."""
        self._check_open()
        return Stage(self._run, target_of(self._vhost, name, stream, exchange, routing_key))

    # ------------------------------------------------------------ how

    def _run(self, steps: Steps[T]) -> T:
        bounds = self._options.bounds
        return drive(steps, self._call) if bounds is None else drive_within(bounds, steps, self._call)

    def _run_while_up(self, steps: Steps[T]) -> T:
        """Run a verb to its end, even while the connection closes.

        Readers then store how far their groups came, within the time that streams may take to end.
        """
        grace = self._grace
        if grace is None:
            return self._run(steps)
        if self._is_hung_up:
            self._check_open()
        return drive(steps, lambda method, payload: self._send(method, payload, max(1, grace.hang_up_ms())))

    def _call(self, method: str, payload: bytes) -> bytes:
        self._check_open()
        return self._send(method, payload, self._options.timeout_ms)

    def _send(self, method: str, payload: bytes, timeout_ms: int) -> bytes:
        try:
            return self._transport.call(method, payload, timeout_ms, is_repeatable(method))
        except self._transport.rpc_error as error:
            raise from_status(*error.args) from error

    def _settle(self, call: Call) -> None:
        self._call(*call)

    def _publisher(self) -> Publishing:
        publishing = self._publishing
        if publishing is not None and not publishing.is_ended:
            return publishing
        with self._lock:
            self._check_open()
            if self._publishing is None or self._publishing.is_ended:
                if self._publishing is not None:
                    self._publishing.close()
                port = self._transport.publisher(self._options.new_publisher())
                self._publishing = Publishing(port, self._transport.rpc_error, self._options.timeout_ms)
            return self._publishing

    def _give_up_names(self, grace: Grace) -> None:
        """Delete the names that were drawn for publishers. One that stays is forgotten when it was unused for long."""
        for name in self._options.drawn:
            with suppress(PenstockError):
                drive(
                    delete_producer(self._vhost, name),
                    lambda method, payload: self._send(method, payload, max(1, grace.hang_up_ms())),
                )

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the connection is closed; connect again")
