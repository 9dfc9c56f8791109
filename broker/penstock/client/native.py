"""The transport of the native module: batching, encoding and reconnecting happen in Rust, without the GIL.

The only module of the client that knows the native module; importing it fails where that is missing.
"""

import json
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from penstock._core import Channel, Consumer, CoreError, Delivery, Publisher, RpcError, perf_latency, perf_throughput
from penstock.client.errors import PenstockError, from_status
from penstock.client.messages import Message
from penstock.client.properties import read_properties
from penstock.client.transport import (
    ConsumerOptions,
    ConsumerPort,
    KeyedPublisherPort,
    PublisherOptions,
    PublisherPort,
    ReaderOptions,
    ReaderPort,
    StatusError,
    TransportOptions,
)
from penstock.client.uri import Address

if TYPE_CHECKING:
    from penstock.client.pure import PureTransport

__all__ = ["NativeTransport", "measure_latency", "measure_throughput"]

Message.register(Delivery)


class NativeTransport:
    """One HTTP/2 connection, made at the first use and again after it broke. What the native module has not learned
    (keys, readers of streams) goes over a second one, of grpcio, made when it is first asked for."""

    rpc_error: type[Exception] = RpcError
    stream_error: type[Exception] = StatusError

    def __init__(self, address: Address, options: TransportOptions) -> None:
        self._address, self._options = address, options
        self._beside: PureTransport | None = None
        self._lock = Lock()
        self._channel = Channel(
            address.target,
            address.authorization,
            connect_timeout_ms=options.connect_timeout_ms,
            message_bytes_max=options.message_bytes_max,
            tls=address.tls.texts() if address.tls is not None else None,
        )

    def call(self, method: str, payload: bytes, timeout_ms: int) -> bytes:
        return self._channel.call(method, payload, timeout_ms)

    def publisher(self, options: PublisherOptions) -> PublisherPort:
        return Publisher(
            self._channel,
            options.vhost,
            options.level,
            in_flight_max=options.in_flight_max,
            batch_max=options.batch_max,
            reconnect=options.reconnect,
        )

    def consumer(self, options: ConsumerOptions) -> ConsumerPort:
        consumer = Consumer(
            self._channel,
            options.vhost,
            options.queue,
            prefetch=options.prefetch,
            auto_ack=options.auto_ack,
            exclusive=options.exclusive,
            consumer_tag=options.consumer_tag,
            reconnect=options.reconnect,
            read_properties=read_properties,
        )
        # That a Delivery is a Message, mypy cannot know.
        return cast(ConsumerPort, consumer)

    def keyed_publisher(self, options: PublisherOptions) -> KeyedPublisherPort:
        return self._pure().keyed_publisher(options)

    def reader(self, options: ReaderOptions) -> ReaderPort:
        return self._pure().reader(options)

    def close(self) -> None:
        if self._beside is not None:
            self._beside.close()
        self._channel.close()

    def _pure(self) -> "PureTransport":
        from penstock.client.pure import PureTransport

        with self._lock:
            if self._beside is None:
                self._beside = PureTransport(self._address, self._options)
            return self._beside


def measure_throughput(options: dict[str, Any]) -> dict[str, Any]:
    """Runs the native load generator on queues that are there already; its figures."""
    return _measured(perf_throughput, options)


def measure_latency(options: dict[str, Any]) -> dict[str, Any]:
    """The same, one message at a time at a steady rate."""
    return _measured(perf_latency, options)


def _measured(measure: Callable[[str], str], options: dict[str, Any]) -> dict[str, Any]:
    try:
        figures: dict[str, Any] = json.loads(measure(json.dumps(options)))
    except RpcError as error:
        raise from_status(*error.args) from error
    except CoreError as error:
        raise PenstockError(str(error)) from error
    return figures
