"""The transport over grpcio, for where the native module is missing: the same promises, slower.

A connection has a channel and an HTTP/2 connection to itself, because exclusive queues and what `get` took belong to
it.
"""

from collections.abc import Callable, Iterator
from random import random
from typing import Any
from weakref import WeakSet

import grpc

from penstock.client.backoff import Backoff
from penstock.client.errors import UNKNOWN
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


class PureTransport:
    """One channel of grpcio."""

    rpc_error: type[Exception] = StatusError

    def __init__(self, address: Address, options: TransportOptions) -> None:
        self._channel = _channel(address, options)
        # Bytes in, bytes out: without serialisers grpcio passes them through.
        self._unary: Callable[[str], Any] = self._channel.unary_unary
        self._stream: Callable[[str], Any] = self._channel.stream_stream
        self._metadata = (("authorization", address.authorization),)
        self._ports: WeakSet[PurePublisher | PureReader | PureConsumer] = WeakSet()

    def call(self, method: str, payload: bytes, timeout_ms: int) -> bytes:
        try:
            answer: bytes = self._unary(method)(payload, timeout=timeout_ms / 1000, metadata=self._metadata)
        except grpc.RpcError as error:
            raise _status(error) from error
        return answer

    def open(self, method: str, requests: Iterator[bytes]) -> Stream:
        return _GrpcStream(self._stream(method)(requests, metadata=self._metadata))

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
        self._channel.close()


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

    def __init__(self, call: Any) -> None:
        self._call = call

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._call
        except grpc.RpcError as error:
            raise _status(error) from error

    def cancel(self) -> None:
        self._call.cancel()


def _status(error: Any) -> StatusError:
    """Convert an error of grpcio, which is also a call: code, details and trailing metadata are its methods."""
    code = error.code()
    number: int = code.value[0] if code is not None else UNKNOWN
    details = b""
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY:
            details = value
    return StatusError(number, error.details() or "", details)
