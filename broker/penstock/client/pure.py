"""The transport over grpcio, for where the native module is missing: the same promises, slower.

A connection has a channel and an HTTP/2 connection to itself, because exclusive queues and what `get` took belong to
it. Of a broker with several addresses one is used until it is unavailable, then the next.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import random
from threading import Lock
from typing import Any
from weakref import WeakSet

import grpc

from penstock.client.backoff import Backoff
from penstock.client.errors import UNAVAILABLE, UNKNOWN
from penstock.client.pure_consumer import PureConsumer
from penstock.client.pure_publisher import PurePublisher
from penstock.client.pure_reader import PureReader
from penstock.client.streams import Stream
from penstock.client.transport import (
    ConsumerOptions,
    ConsumerPort,
    PublisherOptions,
    PublisherPort,
    ReaderOptions,
    ReaderPort,
    StatusError,
    TransportOptions,
)
from penstock.client.uri import Address

__all__ = ["PureTransport"]

# What a request or a response may hold beside one message of the largest size.
REQUEST_BYTES_EXTRA = 4 << 20
DETAILS_KEY = "grpc-status-details-bin"
# The messages of grpcio for a call that was not sent because there was no connection.
UNSENT = ("failed to connect", "DNS resolution failed", "connections to all backends failing")


class PureTransport:
    """Channels of grpcio, one for each address of the broker; the current one is used."""

    rpc_error: type[Exception] = StatusError

    def __init__(self, address: Address, options: TransportOptions) -> None:
        hosts = ((address.host, address.port), *address.others)
        singles = [replace(address, host=host, port=port, others=()) for host, port in hosts]
        # A channel connects at its first use.
        self._channels = [_channel(single, options) for single in singles]
        self._targets = address.targets
        # Protects the number of the current channel.
        self._lock = Lock()
        self._current = 0
        self._metadata = (("authorization", address.authorization),)
        self._ports: WeakSet[PurePublisher | PureReader | PureConsumer] = WeakSet()

    def call(self, method: str, payload: bytes, timeout_ms: int) -> bytes:
        tried: list[str] = []
        while True:
            at = self._current
            # Bytes in, bytes out: without serialisers grpcio passes them through.
            unary = self._channels[at].unary_unary(method)
            try:
                answer: bytes = unary(payload, timeout=timeout_ms / 1000, metadata=self._metadata)
            except grpc.RpcError as error:
                status = _status(error)
                self._leave(at, status)
                if not is_unsent(status) or len(self._channels) == 1:
                    raise status from error
                tried.append(f"{self._targets[at]}: {status.args[1]}")
                if len(tried) == len(self._channels):
                    raise StatusError(UNAVAILABLE, "; ".join(tried), b"") from error
            else:
                return answer

    def open(self, method: str, requests: Iterator[bytes]) -> Stream:
        """Open a stream. One that fails is opened anew by its owner, at the next address if this one is unavailable."""
        at = self._current
        call = self._channels[at].stream_stream(method)(requests, metadata=self._metadata)
        return _GrpcStream(call, lambda status: self._leave(at, status))

    def publisher(self, options: PublisherOptions) -> PublisherPort:
        port = PurePublisher(self, options, Backoff(random))
        self._ports.add(port)
        return port

    def reader(self, options: ReaderOptions) -> ReaderPort:
        port = PureReader(self, options, Backoff(random))
        self._ports.add(port)
        return port

    def consumer(self, options: ConsumerOptions) -> ConsumerPort:
        port = PureConsumer(self, options, Backoff(random))
        self._ports.add(port)
        return port

    def close(self) -> None:
        # Threads that opened a stream on a closed channel would end with an exception of grpcio.
        for port in list(self._ports):
            port.abandon()
        for channel in self._channels:
            channel.close()

    def _leave(self, at: int, status: StatusError) -> None:
        """Use the next address from now on, if this one is unavailable and no other call has left it."""
        with self._lock:
            if status.args[0] == UNAVAILABLE and self._current == at:
                self._current = (at + 1) % len(self._channels)


def _channel(address: Address, options: TransportOptions) -> Any:
    settings: list[tuple[str, Any]] = [
        # Else two connections to one broker would share one HTTP/2 connection.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_receive_message_length", options.message_bytes_max + REQUEST_BYTES_EXTRA),
        ("grpc.max_send_message_length", options.message_bytes_max + REQUEST_BYTES_EXTRA),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.initial_reconnect_backoff_ms", 50),
        # To gRPC this is also how long an attempt to connect may take.
        ("grpc.min_reconnect_backoff_ms", options.connect_timeout_ms),
        ("grpc.max_reconnect_backoff_ms", 5_000),
        ("grpc.enable_http_proxy", 0),
    ]
    if address.tls is None:
        return grpc.insecure_channel(address.target, options=settings)
    *pems, server_name = address.tls.texts()
    authorities, certificate, key = (pem.encode() or None for pem in pems)
    credentials = grpc.ssl_channel_credentials(authorities, key, certificate)
    if server_name:
        settings.append(("grpc.ssl_target_name_override", server_name))
    return grpc.secure_channel(address.target, credentials, options=settings)


class _GrpcStream:
    """A call of grpcio whose end is told as a StatusError."""

    def __init__(self, call: Any, on_end: Callable[[StatusError], None]) -> None:
        self._call = call
        self._on_end = on_end

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._call
        except grpc.RpcError as error:
            status = _status(error)
            self._on_end(status)
            raise status from error

    def cancel(self) -> None:
        self._call.cancel()


def is_unsent(status: StatusError) -> bool:
    """Return whether a call never left, so that it may be made at another address."""
    code, message, _ = status.args
    return bool(code == UNAVAILABLE) and any(words in message for words in UNSENT)


def _status(error: Any) -> StatusError:
    """Convert an error of grpcio, which is also a call: code, details and trailing metadata are its methods."""
    code = error.code()
    number: int = code.value[0] if code is not None else UNKNOWN
    details = b""
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY:
            details = value
    return StatusError(number, error.details() or "", details)
