"""A stream as a thread uses it: publish, read, look at its offsets. It keeps no connection of its own."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from types import TracebackType
from typing import Protocol, Self, TypeAlias, TypeVar

from penstock.client import stream_calls
from penstock.client.failed_order import UnknownOutcomes
from penstock.client.outcomes import FAILURES_MAX
from penstock.client.places import Place
from penstock.client.properties import Properties, encode_properties
from penstock.client.publishing import Publishing, publish_anew
from penstock.client.reading import ReadingLimits, StreamReader
from penstock.client.steps import Steps
from penstock.client.stream_verbs import StreamVerbs
from penstock.client.transport import ReaderOptions, ReaderPort
from penstock.client.values import Value

__all__ = ["Stream", "StreamPublisher"]

T = TypeVar("T")

# A key, or None, and a body.
KeyedBody: TypeAlias = tuple["bytes | str | None", bytes]


class Host(Protocol):
    """The part of a connection that a stream uses."""

    @property
    def vhost(self) -> str: ...
    def run(self, steps: Steps[T]) -> T: ...
    def publishing(self) -> Publishing:
        """Return the connection's own publisher."""

    def keyed_publishing(self) -> Publishing:
        """Return the publisher that all streams of the connection share for messages with keys."""

    def named_publishing(self, producer: str) -> Publishing: ...
    def open_reader(self, options: ReaderOptions) -> ReaderPort: ...
    def keep(self, closing: "StreamReader | StreamPublisher") -> None:
        """Close an object with the connection, if it is not closed before."""

    @property
    def rpc_error(self) -> type[Exception]: ...


class Stream(StreamVerbs):
    """A stream, or one partition of it, by its name."""

    def __init__(self, host: Host, name: str) -> None:
        super().__init__(host.run, host.vhost, name)
        self._host = host
        self._address: tuple[str, str] | None = None

    # ------------------------------------------------------------ reading

    def read(
        self,
        from_: Place = "next",
        until: Place | None = None,
        count: int | None = None,
        group: str = "",
        single_active: bool = False,
        auto_store: bool = False,
        idle_timeout: float | None = None,
        from_replica: bool = False,
    ) -> StreamReader:
        """Return the messages as they come, to iterate over: all partitions together, each in its order.

        `from_` is first, last, next, an offset, -N, a datetime or an age such as '1h'; `until` an offset, 'next' or a
        datetime. `idle_timeout` seconds without a message end the iteration. `from_replica` reads at the addresses of
        this connection, from a broker's replica that may be a little behind the leader. A group is
        read at the leader all the same.
        """
        limits = ReadingLimits(count, idle_timeout, auto_store)
        wanted = stream_calls.Reading(from_, until, group, single_active, from_replica)
        plan = self._host.run(stream_calls.plan_reading(self._host.vhost, self.name, wanted, now_ms()))
        ports = [self._host.open_reader(options) for options in plan]
        reader = StreamReader(ports, self._host.rpc_error, limits, lambda *where: self._store(group, *where))
        self._host.keep(reader)
        return reader

    def _store(self, group: str, partition: str, offset: int) -> None:
        if group:
            self.store(group, offset, partition)

    # ------------------------------------------------------------ publishing

    def publish(
        self,
        body: bytes,
        key: "bytes | str | None" = None,
        properties: Properties | None = None,
        headers: Mapping[str, Value] | None = None,
    ) -> None:
        """Publish a message; return when the broker confirmed it. Threads that publish at once share batches."""
        fields = self._fields(properties, headers)
        if key is None:
            publish_anew(self._host.publishing, lambda publishing: publishing.publish(body, *fields))
        else:
            keyed = (key_bytes(key), 0)
            publish_anew(self._host.keyed_publishing, lambda publishing: publishing.publish(body, *fields, keyed))

    def publish_many(
        self,
        bodies: Iterable[bytes],
        key: "bytes | str | None" = None,
        properties: Properties | None = None,
        headers: Mapping[str, Value] | None = None,
    ) -> int:
        """Publish many messages with one key or none; return their number when all are confirmed."""
        fields = self._fields(properties, headers)
        if key is None:
            return self._host.publishing().publish_many(bodies, *fields)
        return self._host.keyed_publishing().publish_many(bodies, *fields, (key_bytes(key), 0))

    def publish_keyed(
        self,
        messages: Iterable[KeyedBody],
        properties: Properties | None = None,
        headers: Mapping[str, Value] | None = None,
    ) -> int:
        """Publish pairs of key and body; return their number when all are confirmed."""
        fields = self._fields(properties, headers)
        return self._host.keyed_publishing().publish_keyed(key_pairs(messages), fields, 0)

    def publisher(self, producer: str) -> "StreamPublisher":
        """Open a named publisher: what it repeats is stored once. One publisher at a time may use a name."""
        if not producer:
            raise ValueError("a publisher's name must not be empty")
        stored = self._host.run(stream_calls.stored_sequences(self._host.vhost, producer))
        publisher = StreamPublisher(self._host.named_publishing(producer), self._fields, stored)
        self._host.keep(publisher)
        return publisher

    def _fields(
        self, properties: Properties | None, headers: Mapping[str, Value] | None
    ) -> "tuple[str, str, bytes | None, bool]":
        """Mandatory: a message for a stream that is gone must not pass for stored."""
        if self._address is None:
            self._address = address_of(self.name, self.info().partitions)
        encoded = encode_properties(properties, headers) if properties is not None or headers else None
        return (*self._address, encoded, True)


class StreamPublisher:
    """A named publisher. Its sequences go on from `last_sequence`, up to which the broker has stored all.

    The broker stores nothing of a name below the highest sequence it has, and confirms it all the same. So a sequence
    that may be stored is never given to another message: where a failure leaves that open, the messages have to be sent
    again with their sequences, or the publisher opened again. After a crash, the logs of a dedicated stream's
    partitions may differ: then the sequences behind `last_sequence` and up to `highest_sequence` are open likewise.
    """

    def __init__(
        self,
        publishing: Publishing,
        fields: "Callable[[Properties | None, Mapping[str, Value] | None], tuple[str, str, bytes | None, bool]]",
        stored: tuple[int, int],
    ) -> None:
        self._publishing = publishing
        self._fields = fields
        self._order = Lock()
        self._is_closed = False
        self.last_sequence, self.highest_sequence = stored
        self._unknown = UnknownOutcomes(*stored)

    def publish(
        self,
        body: bytes,
        key: "bytes | str | None" = None,
        properties: Properties | None = None,
        headers: Mapping[str, Value] | None = None,
        sequence: int | None = None,
    ) -> int:
        """Publish a message; return its sequence when the broker confirmed that it is stored."""
        fields = self._fields(properties, headers)
        with self._sending(sequence) as chosen:
            self._publishing.publish_keyed([(key_bytes(key), body)], fields, chosen)
        return chosen

    def publish_many(
        self,
        bodies: Iterable[bytes],
        key: "bytes | str | None" = None,
        properties: Properties | None = None,
        headers: Mapping[str, Value] | None = None,
        sequence: int | None = None,
    ) -> int:
        """Publish many messages; return their number. `sequence` is the first one's, the others count up."""
        fields = self._fields(properties, headers)
        with self._sending(sequence) as first:
            return self._publishing.publish_many(bodies, *fields, (key_bytes(key), first))

    def publish_keyed(
        self,
        messages: Iterable[KeyedBody],
        properties: Properties | None = None,
        headers: Mapping[str, Value] | None = None,
        sequence: int | None = None,
    ) -> int:
        """Publish pairs of key and body; return their number. `sequence` is the first one's."""
        fields = self._fields(properties, headers)
        with self._sending(sequence) as first:
            return self._publishing.publish_keyed(key_pairs(messages), fields, first)

    def close(self) -> None:
        """Wait for outstanding confirms and release the name."""
        if not self._is_closed:
            self._is_closed = True
            self._publishing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _sending(self, sequence: int | None) -> Iterator[int]:
        """Yield the first sequence of a call, and afterwards record which of its sequences are stored."""
        with self._order:
            first = self._next(sequence)
            before = self._publishing.last_number
            self._publishing.refused = []
            try:
                yield first
            except BaseException:
                self._see_failure(first, before)
                raise
            self._advance(first, first + self._publishing.last_number - before - 1)

    def _see_failure(self, first: int, before: int) -> None:
        publishing = self._publishing
        refused, last = publishing.refused, publishing.last_number
        if last == before:
            # Nothing was sent.
            return
        is_known = 0 < len(refused) < FAILURES_MAX and publishing.is_at_work
        if is_known and refused == list(range(refused[0], last + 1)):
            # Everything from there on was refused, so the next message may have that one's sequence.
            self._advance(first, first + refused[0] - before - 2)
        else:
            self._unknown.add(first, first + last - before - 1)

    def _advance(self, first: int, last: int) -> None:
        """Sequences `first` to `last` are stored."""
        if first <= last:
            self.last_sequence = max(self.last_sequence, last)
            self._unknown.confirm(first, last)

    def _next(self, sequence: int | None) -> int:
        if sequence is None:
            self._unknown.check()
            return self.last_sequence + 1
        if not 0 < sequence < 2**64:
            raise ValueError(f"a sequence is {sequence}; it must be at least 1 and fit into 64 bits")
        return sequence


def address_of(name: str, partitions: tuple[str, ...]) -> tuple[str, str]:
    """Exchange and routing key that lead to a stream: its own exchange, or the default one to its queue."""
    return ("", name) if partitions == (name,) else (name, "")


def now_ms() -> int:
    return int(time.time() * 1_000)


def key_pairs(messages: Iterable[KeyedBody]) -> Iterator[tuple[bytes | None, bytes]]:
    return ((key_bytes(key), body) for key, body in messages)


def key_bytes(key: "bytes | str | None") -> bytes | None:
    return key.encode() if isinstance(key, str) else key
