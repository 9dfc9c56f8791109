"""The transport over grpcio, for where the native module is missing: the same promises, slower.

A connection has a channel and an HTTP/2 connection to itself, because exclusive queues and what `get` took belong to
it. Of a broker with several addresses one is used until it is unavailable, then the next, and in a cluster the leader
of the connection's virtual host, where another broker names it.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from random import random
from threading import Event, Lock
from time import monotonic
from typing import Any
from weakref import WeakSet

import grpc

from penstock.client.backoff import Backoff
from penstock.client.errors import CANCELLED, UNAVAILABLE, UNKNOWN
from penstock.client.following import LEADER, Following, Hint, answered, ended, hint_in
from penstock.client.pure_consumer import PureConsumer
from penstock.client.pure_publisher import PurePublisher
from penstock.client.pure_reader import PureReader
from penstock.client.streams import Stream, seconds_until_retry
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

# A call that only reads is made again after so many broken connections. More of them are no failover, and the call may
# be what breaks them.
BREAKS_MAX = 3
# What a request or a response may hold beside one message of the largest size.
REQUEST_BYTES_EXTRA = 4 << 20
# A timeout of 0 would be none.
SECONDS_MIN = 0.001
# Channels to leaders that were named beside the given addresses.
NAMED_MAX = 4
# When a connection without any traffic is asked whether it is there, and when it is given up without an answer. Another
# broker of a cluster leads about three seconds after a leader has gone silent.
PINGS_MS_ALONE = (30_000, 10_000)
PINGS_MS_IN_CLUSTER = (2_000, 2_000)
CLOSED = "the connection is closed; connect again"
DETAILS_KEY = "grpc-status-details-bin"
# The messages of grpcio for a call that was not sent because there was no connection.
UNSENT = ("failed to connect", "DNS resolution failed", "connections to all backends failing")


class PureTransport:
    """Channels of grpcio, one for each address of the broker and for leaders that were named; one is used at a time."""

    rpc_error: type[Exception] = StatusError

    def __init__(self, address: Address, options: TransportOptions) -> None:
        self._vhost = address.vhost
        self._channels = _Channels(address, options)
        self._metadata = (("authorization", address.authorization),)
        self._given = address.targets
        self._route = _Route(self._channels, Following(self._given, address.follows), self._metadata)
        self._ports: WeakSet[PurePublisher | PureReader | PureConsumer] = WeakSet()
        self._closed = Event()

    def call(self, method: str, payload: bytes, timeout_ms: int, is_repeatable: bool = False) -> bytes:
        """Make a call; where a broker refuses it because it does not lead, again at the leader, within the time.

        One that is repeatable is made again also where its connection broke.
        """
        deadline = monotonic() + timeout_ms / 1_000
        tries = _Tries(self._route.following.given, deadline, is_repeatable=is_repeatable)
        # The state for another virtual host than the connection's: it is of this call alone.
        other: Following | None = None
        while True:
            following = other or self._route.following
            target = following.current
            try:
                answer, leader = self._unary(following, method, payload, deadline)
            except StatusError as status:
                hint = hint_in(*status.args)
                if other is None and (hint is None or hint.vhost == self._vhost):
                    self._route.move(target, status, hint)
                else:
                    step = ended(
                        other or self._route.following, target, status.args[0], hint, is_unsent=is_unsent(status)
                    )
                    other, status.wait = step
                tries.failed(target, status, hint if self._route.following.follows else None)
                if self._closed.wait(tries.seconds_until_next(status)):
                    raise
            else:
                self._route.answered(target, leader)
                return answer

    def _unary(self, following: Following, method: str, payload: bytes, deadline: float) -> tuple[bytes, str]:
        """Return the answer, and the leader to which the call was relayed."""
        # Bytes in, bytes out: without serialisers grpcio passes them through.
        unary = self._channels.at(following.current).unary_unary(method)
        seconds = max(deadline - monotonic(), SECONDS_MIN)
        try:
            metadata = self._metadata + following.headers
            answer, call = unary.with_call(payload, timeout=seconds, metadata=metadata)
        except grpc.RpcError as error:
            raise _status(error) from error
        except ValueError as error:
            if self._closed.is_set():  # grpcio's answer on a channel that is closed
                raise StatusError(CANCELLED, CLOSED, b"") from error
            raise
        return answer, leader_of(call)

    def open(self, method: str, requests: Iterator[bytes]) -> Stream:
        """Open a stream. One that fails is opened anew by its owner, where the state says then."""
        return self._route.open(method, requests)

    def publisher(self, options: PublisherOptions) -> PublisherPort:
        port = PurePublisher(self, options, Backoff(random))
        self._ports.add(port)
        return port

    def reader(self, options: ReaderOptions) -> ReaderPort:
        given = _Route(self._channels, Following(self._given, follows=False), self._metadata)
        port = PureReader(given if options.from_replica else self, options, Backoff(random))
        self._ports.add(port)
        return port

    def consumer(self, options: ConsumerOptions) -> ConsumerPort:
        port = PureConsumer(self, options, Backoff(random))
        self._ports.add(port)
        return port

    def close(self) -> None:
        self._closed.set()
        # Threads that opened a stream on a closed channel would end with an exception of grpcio.
        for port in list(self._ports):
            port.abandon()
        self._channels.close()


class _Route:
    """Where calls go next, for the calls that have it in common; it opens their streams there."""

    def __init__(self, channels: "_Channels", following: Following, metadata: tuple[tuple[str, str], ...]) -> None:
        self._channels = channels
        self._metadata = metadata
        # Protects `following`.
        self._lock = Lock()
        self.following = following

    def open(self, method: str, requests: Iterator[bytes]) -> Stream:
        following = self.following
        target, metadata = following.current, self._metadata + following.headers
        call = self._channels.at(target).stream_stream(method)(requests, metadata=metadata)
        return _GrpcStream(call, partial(self.answered, target), partial(self._move_on, target))

    def answered(self, target: str, leader: str) -> None:
        if answered(self.following, target, leader) is not self.following:
            with self._lock:
                self.following = answered(self.following, target, leader)

    def move(self, target: str, status: StatusError, hint: Hint | None) -> None:
        """Go to where the next attempt is made after a call at `target` ended with `status`, which says when it is."""
        with self._lock:
            code, unsent = status.args[0], is_unsent(status)
            self.following, status.wait = ended(self.following, target, code, hint, is_unsent=unsent)

    def _move_on(self, target: str, status: StatusError) -> None:
        self.move(target, status, hint_in(*status.args))


class _Tries:
    """The attempts of a unary call."""

    def __init__(self, given: tuple[str, ...], deadline: float, *, is_repeatable: bool) -> None:
        self._given = given
        self._deadline = deadline
        self._breaks_left = BREAKS_MAX if is_repeatable else 0
        self._backoff = Backoff(random)
        # Why addresses could not be reached since a broker has answered.
        self._unreached: dict[str, str] = {}

    def failed(self, target: str, status: StatusError, hint: Hint | None) -> None:
        """Raise the status if the call may not be made again: it was sent, or there is no address left to try."""
        is_made_again = self._breaks_left > 0 and is_broken(status)
        if hint is not None or is_made_again:
            self._breaks_left -= is_made_again
            self._unreached.clear()
            return
        if not is_unsent(status):
            raise status
        self._unreached[target] = status.args[1]
        if any(each not in self._unreached for each in self._given):
            return
        if len(self._unreached) == 1:
            raise status
        text = "; ".join(f"{each}: {why}" for each, why in self._unreached.items())
        raise StatusError(UNAVAILABLE, text, b"") from status

    def seconds_until_next(self, status: StatusError) -> float:
        """Return the pause before the next attempt. Raise the status if the time is over by then."""
        # Without a connection, the next address is tried at once.
        seconds = 0.0 if is_unsent(status) else seconds_until_retry(status, self._backoff)
        if monotonic() + seconds >= self._deadline:
            raise status
        return seconds


class _Channels:
    """Channels by address. A channel connects at its first use."""

    def __init__(self, address: Address, options: TransportOptions) -> None:
        self._address = address
        self._options = options
        hosts = ((address.host, address.port), *address.others)
        singles = [replace(address, host=host, port=port, others=()) for host, port in hosts]
        is_alone = len(singles) == 1
        self._given = {
            single.target: _channel(single.target, address, options, is_alone=is_alone) for single in singles
        }
        # Protects `_named`.
        self._lock = Lock()
        # Of leaders that were named; the one that was not used for the longest comes first.
        self._named: OrderedDict[str, Any] = OrderedDict()
        self._is_closed = False

    def at(self, target: str) -> Any:
        given = self._given.get(target)
        if given is not None:
            return given
        with self._lock:
            found = self._named.pop(target, None)
            if found is None:
                if self._is_closed:
                    raise StatusError(CANCELLED, CLOSED, b"")
                found = _channel(target, self._address, self._options, is_alone=False)
            self._named[target] = found
            least_used = self._named.popitem(last=False)[1] if len(self._named) > NAMED_MAX else None
        if least_used is not None:
            least_used.close()
        return found

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            channels = [*self._given.values(), *self._named.values()]
        for channel in channels:
            channel.close()


def _channel(target: str, address: Address, options: TransportOptions, *, is_alone: bool) -> Any:
    """Make the channel to one address. To a leader that was named it is as safe as to the given addresses.

    A silent broker is left soon where another one may serve.
    """
    pings_ms = PINGS_MS_ALONE if is_alone else PINGS_MS_IN_CLUSTER
    settings: list[tuple[str, Any]] = [
        # Else two connections to one broker would share one HTTP/2 connection.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_receive_message_length", options.message_bytes_max + REQUEST_BYTES_EXTRA),
        ("grpc.max_send_message_length", options.message_bytes_max + REQUEST_BYTES_EXTRA),
        ("grpc.keepalive_time_ms", pings_ms[0]),
        ("grpc.keepalive_timeout_ms", pings_ms[1]),
        # A consumer that waits for messages sends none.
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", 50),
        # To gRPC this is also how long an attempt to connect may take.
        ("grpc.min_reconnect_backoff_ms", options.connect_timeout_ms),
        ("grpc.max_reconnect_backoff_ms", 5_000),
        ("grpc.enable_http_proxy", 0),
    ]
    if address.tls is None:
        return grpc.insecure_channel(target, options=settings)
    *pems, server_name = address.tls.texts()
    authorities, certificate, key = (pem.encode() or None for pem in pems)
    credentials = grpc.ssl_channel_credentials(authorities, key, certificate)
    if server_name:
        settings.append(("grpc.ssl_target_name_override", server_name))
    return grpc.secure_channel(target, credentials, options=settings)


class _GrpcStream:
    """A call of grpcio. It reports that it was answered, and its end as a StatusError, which is then raised."""

    def __init__(self, call: Any, on_answer: Callable[[str], None], on_end: Callable[[StatusError], None]) -> None:
        self._call = call
        self._on_answer = on_answer
        self._on_end = on_end

    def __iter__(self) -> Iterator[bytes]:
        leader: str | None = None
        try:
            for payload in self._call:
                # The headers are there with the first response.
                leader = leader_of(self._call) if leader is None else leader
                self._on_answer(leader)
                yield payload
        except grpc.RpcError as error:
            status = _status(error)
            self._on_end(status)
            raise status from error

    def cancel(self) -> None:
        self._call.cancel()

    def give_up(self, status: StatusError) -> StatusError:
        self._call.cancel()
        self._on_end(status)
        return status


def is_broken(status: StatusError) -> bool:
    """Return whether the connection of a call broke: a broker that refuses a call says why in details."""
    code, _, details = status.args
    return code == UNAVAILABLE and not details and not is_unsent(status)


def is_unsent(status: StatusError) -> bool:
    """Return whether a call never left, so that it may be made at another address."""
    code, message, _ = status.args
    return bool(code == UNAVAILABLE) and any(words in message for words in UNSENT)


def leader_of(call: Any) -> str:
    """Return the address of the leader to which a call was relayed that is answered; empty for none."""
    return str(next((value for key, value in call.initial_metadata() if key == LEADER), ""))


def _status(error: Any) -> StatusError:
    """Convert an error of grpcio, which is also a call: code, details and trailing metadata are its methods."""
    code = error.code()
    number: int = code.value[0] if code is not None else UNKNOWN
    details = b""
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY:
            details = value
    return StatusError(number, error.details() or "", details)
