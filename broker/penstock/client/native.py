"""The transport of the native module: batching, encoding and reconnecting happen in Rust, without the GIL.

The only module of the client that knows the native module; importing it fails where that is missing.
"""

import json
from collections.abc import Callable
from typing import Any, cast

from penstock._core import (
    Channel,
    ChannelTls,
    Consumer,
    Delivery,
    Publisher,
    Reader,
    RpcError,
    StreamDelivery,
    perf_amqp,
    perf_interrupt,
    perf_latency,
    perf_throughput,
)
from penstock.client.errors import from_status
from penstock.client.messages import Message
from penstock.client.properties import read_properties
from penstock.client.stream_messages import StreamMessage
from penstock.client.transport import (
    ConsumerOptions,
    ConsumerPort,
    PublisherOptions,
    PublisherPort,
    ReaderOptions,
    ReaderPort,
    TransportOptions,
)
from penstock.client.uri import Address, Tls

__all__ = ["NativeTransport", "interrupt_amqp", "measure_amqp", "measure_latency", "measure_throughput"]

Message.register(Delivery)
StreamMessage.register(StreamDelivery)


class NativeTransport:
    """One HTTP/2 connection, made at the first use and again after it broke."""

    rpc_error: type[Exception] = RpcError

    def __init__(self, address: Address, options: TransportOptions) -> None:
        self._channel = Channel(
            address.targets,
            address.authorization,
            connect_timeout_ms=options.connect_timeout_ms,
            message_bytes_max=options.message_bytes_max,
            tls=_tls(address.tls) if address.tls is not None else None,
            follows=address.follows,
            vhost=address.vhost,
        )

    def call(self, method: str, payload: bytes, timeout_ms: int, is_repeatable: bool = False) -> bytes:
        return self._channel.call(method, payload, timeout_ms, is_repeatable)

    def publisher(self, options: PublisherOptions) -> PublisherPort:
        return Publisher(
            self._channel,
            options.vhost,
            options.durability,
            in_flight_max=options.in_flight_max,
            batch_max=options.batch_max,
            reconnect=options.reconnect,
            producer=options.producer,
            numbers_itself=options.numbers_itself,
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
            priority=options.priority,
            consumer_timeout_ms=options.consumer_timeout_ms,
        )
        # That a Delivery is a Message, mypy cannot know.
        return cast(ConsumerPort, consumer)

    def reader(self, options: ReaderOptions) -> ReaderPort:
        reader = Reader(
            self._channel,
            options.vhost,
            options.partition,
            start=options.start,
            end=options.end,
            credit=options.credit,
            group=options.group,
            single_active=options.single_active,
            reconnect=options.reconnect,
            read_properties=read_properties,
            from_replica=options.from_replica,
        )
        # As with a Delivery.
        return cast(ReaderPort, reader)

    def close(self) -> None:
        self._channel.close()


def _tls(tls: Tls) -> ChannelTls:
    authorities, certificate, key, server_name = tls.texts()
    return ChannelTls(authorities=authorities, certificate=certificate, key=key, server_name=server_name)


def measure_throughput(options: dict[str, Any]) -> dict[str, Any]:
    """Run the native load generator on existing queues, and return its figures."""
    return _measured(perf_throughput, options)


def measure_latency(options: dict[str, Any]) -> dict[str, Any]:
    """Measure latency, with one message at a time at a steady rate."""
    return _measured(perf_latency, options)


def measure_amqp(options: dict[str, Any]) -> dict[str, Any]:
    """Measure any broker over AMQP, on queues that are deleted at the end."""
    return _measured(perf_amqp, options)


def interrupt_amqp() -> None:
    """End `measure_amqp` of another thread early."""
    perf_interrupt()


def _measured(measure: Callable[[str], str], options: dict[str, Any]) -> dict[str, Any]:
    try:
        figures: dict[str, Any] = json.loads(measure(json.dumps(options)))
    except RpcError as error:
        raise from_status(*error.args) from error
    return figures
