"""The port between a connection and what carries it: the native module, grpcio, or a test's fake.

A transport is one connection of one user to one broker. Its publishers number messages 1, 2, 3, ... as long as they
exist, report one outcome for each number, and reconnect by themselves, as its consumers do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from penstock.client.following import Wait
from penstock.client.messages import Message
from penstock.client.stream_messages import StreamMessage

__all__ = [
    "IN_FLIGHT_MAX",
    "ConsumerOptions",
    "ConsumerPort",
    "Outcome",
    "PublisherOptions",
    "PublisherPort",
    "ReaderOptions",
    "ReaderPort",
    "StatusError",
    "Transport",
    "TransportOptions",
    "check_prefetch",
]


class Outcome(Protocol):
    """Outcome of the messages from `first` to `last`. Code 0 is confirmed, -1 returned, others a gRPC code."""

    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def code(self) -> int: ...
    @property
    def reason(self) -> str: ...


# Messages of a publisher that may be without an outcome.
IN_FLIGHT_MAX = 65_536

# The largest of the contract; the broker takes more than 65,535 as 65,535.
PREFETCH_MAX = 2**32 - 1

# What the broker takes at most, whatever it was told, and a little more.
MESSAGE_BYTES_MAX = 513 * 1024 * 1024


class StatusError(Exception):
    """A call ended with a gRPC status. `args` is (code: int, message: str, details: bytes).

    `wait` is how long its owner waits before it opens the call again.
    """

    wait = Wait.LONG


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """Bounds of one connection."""

    connect_timeout_ms: int = 5_000
    message_bytes_max: int = MESSAGE_BYTES_MAX


@dataclass(frozen=True, slots=True)
class PublisherOptions:
    vhost: str
    durability: int = 0
    in_flight_max: int = IN_FLIGHT_MAX
    batch_max: int = 1_000
    reconnect: bool = True
    producer: str = ""
    # The publisher numbers messages for its producer itself, and passes over refused ones: their numbers are given up.
    numbers_itself: bool = False
    message_bytes_max: int = MESSAGE_BYTES_MAX


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    vhost: str
    queue: str
    prefetch: int = 1_000
    auto_ack: bool = False
    exclusive: bool = False
    consumer_tag: str = ""
    reconnect: bool = True
    priority: int = 0
    consumer_timeout_ms: int = 0
    """0: as the queue says."""

    def __post_init__(self) -> None:
        check_prefetch(self.prefetch, 1)

    def with_order(self, priority: int, consumer_timeout_ms: int | None) -> "ConsumerOptions":
        """Return the options of a consumer with this priority and limit."""
        if not -(2**31) <= priority < 2**31:
            raise ValueError(f"priority is {priority}; it must be a whole number of 32 bits")
        if consumer_timeout_ms is not None and consumer_timeout_ms < 1:
            raise ValueError(f"consumer_timeout_ms is {consumer_timeout_ms}; it must be at least 1")
        return replace(self, priority=priority, consumer_timeout_ms=consumer_timeout_ms or 0)


def check_prefetch(prefetch: int, least: int) -> None:
    """Raise ValueError if the contract has no such prefetch; TypeError if it is no number."""
    if not least <= prefetch <= PREFETCH_MAX:
        raise ValueError(f"prefetch is {prefetch}; it must be from {least} to {PREFETCH_MAX:,}")


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """`start` is a serialised penstock.v1.Start; `credit` how many responses may be under way or wait."""

    vhost: str
    partition: str
    start: bytes = b""
    end: int | None = None
    credit: int = 8
    group: str = ""
    single_active: bool = False
    reconnect: bool = True
    from_replica: bool = False
    """It reads at the given addresses, whichever broker leads."""


class PublisherPort(Protocol):
    """A publish stream.

    Arguments go by position: a keyword costs more than the publish itself. Messages can have a key and, if the stream
    has a producer, sequences that count up; 0 is none.
    """

    @property
    def wake_fd(self) -> int: ...
    @property
    def lost(self) -> str | None:
        """Why there is no connection, while another one is tried; None while there is one."""

    @property
    def is_ended(self) -> bool:
        """Whether it ended for good."""

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
        """Return the message's number, or 0 when too many are without an outcome."""

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
        """Wait while too many are without an outcome; return the last number. `sequence` is the first one's."""

    def take(self) -> Sequence[Outcome]:
        """Return the outcomes so far; makes wake_fd unreadable."""

    def wait(self, timeout_ms: int) -> Sequence[Outcome]:
        """Wait for at least one outcome and return those so far; empty at the time limit."""

    def flush(self, timeout_ms: int) -> bool: ...
    def close(self, timeout_ms: int = ...) -> None:
        """Wait no longer than this for the broker to end the stream."""


class ConsumerPort(Protocol):
    """A consume stream."""

    @property
    def wake_fd(self) -> int: ...
    @property
    def consumer_tag(self) -> str: ...
    def take(self, count_max: int) -> Sequence[Message]:
        """Return received items, at most count_max; makes wake_fd unreadable when none is left."""

    def wait(self, count_max: int, timeout_ms: int) -> Sequence[Message]: ...
    def flow(self, prefetch: int) -> None: ...
    def flush(self) -> None: ...
    def begin_close(self) -> None:
        """Send the gathered settlements and let the stream end, without waiting for it."""

    def close(self, timeout_ms: int = ...) -> None:
        """Close the stream, and wait no longer than this for the broker."""


class ReaderPort(Protocol):
    """A read stream of one partition. It goes on behind the last message that it brought, also after it broke."""

    @property
    def partition(self) -> str: ...
    @property
    def wake_fd(self) -> int: ...
    @property
    def is_active(self) -> bool:
        """Whether it is its group's reader of the partition."""

    @property
    def is_finished(self) -> bool:
        """Whether it has brought everything up to its end, and all of it was taken."""

    def take(self, count_max: int) -> Sequence[StreamMessage]:
        """Return received items, at most count_max; makes wake_fd unreadable when none is left."""

    def store(self, offset: int) -> None: ...
    def close(self) -> None: ...


class Transport(Protocol):
    """One connection.

    It and its streams raise `rpc_error`, with args as StatusError's, when a status ends them.
    """

    @property
    def rpc_error(self) -> type[Exception]: ...
    def call(self, method: str, payload: bytes, timeout_ms: int, is_repeatable: bool = False) -> bytes:
        """Make a unary call, from any thread. One that is repeatable is made again when its connection breaks."""

    def publisher(self, options: PublisherOptions) -> PublisherPort: ...
    def consumer(self, options: ConsumerOptions) -> ConsumerPort: ...
    def reader(self, options: ReaderOptions) -> ReaderPort: ...
    def close(self) -> None: ...
