"""A stream as a loop uses it; see `stream` for what each verb does."""

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from penstock.client import stream_calls
from penstock.client.aio_publishing import AsyncPublishing
from penstock.client.aio_stream_verbs import AsyncStreamVerbs
from penstock.client.failed_order import UnknownOutcomes
from penstock.client.places import Place
from penstock.client.properties import Properties, encode_properties
from penstock.client.reading import AsyncStreamReader, ReadingLimits
from penstock.client.steps import Steps
from penstock.client.stream import KeyedBody, address_of, key_bytes, now_ms
from penstock.client.transport import ReaderOptions, ReaderPort
from penstock.client.values import Value

__all__ = ["AsyncStream", "AsyncStreamPublisher"]

T = TypeVar("T")


class Host(Protocol):
    """The part of a connection that a stream uses."""

    @property
    def vhost(self) -> str: ...
    async def run(self, steps: Steps[T]) -> T: ...
    def publishing(self) -> AsyncPublishing:
        """Return the connection's own publisher."""

    def keyed_publishing(self, producer: str = "") -> AsyncPublishing:
        """Return the publisher that all streams of the connection share for messages with keys, or the named one."""

    async def end_publishing(self, producer: str) -> None: ...
    def open_reader(self, options: ReaderOptions) -> ReaderPort: ...
    def keep(self, reader: AsyncStreamReader) -> None:
        """Close a reader with the connection, if it is not closed before."""

    @property
    def rpc_error(self) -> type[Exception]: ...


class AsyncStream(AsyncStreamVerbs):
    """A stream, or one partition of it, by its name."""

    def __init__(self, host: Host, name: str) -> None:
        super().__init__(host.run, host.vhost, name)
        self._host = host
        self._address: tuple[str, str] | None = None

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
    ) -> AsyncStreamReader:
        """Return the messages as they come, for `async for`. The arguments are those of `Stream.read`."""
        limits = ReadingLimits(count, idle_timeout, auto_store)
        wanted = stream_calls.Reading(from_, until, group, single_active, from_replica)

        async def open_ports() -> Sequence[ReaderPort]:
            plan = await self._host.run(stream_calls.plan_reading(self._host.vhost, self.name, wanted, now_ms()))
            return [self._host.open_reader(options) for options in plan]

        async def store(partition: str, offset: int) -> None:
            if group:
                await self.store(group, offset, partition)

        reader = AsyncStreamReader(open_ports, self._host.rpc_error, limits, store, asyncio.get_running_loop())
        self._host.keep(reader)
        return reader

    async def publish(
        self,
        body: bytes,
        key: "bytes | str | None" = None,
        properties: Properties | None = None,
        headers: Mapping[str, Value] | None = None,
    ) -> None:
        """Publish a message; return when the broker confirmed it. Tasks that publish at once share batches."""
        fields = await self._fields(properties, headers)
        await self._send(body, fields, key)

    async def publish_many(
        self,
        bodies: Iterable[bytes],
        key: "bytes | str | None" = None,
        properties: Properties | None = None,
        headers: Mapping[str, Value] | None = None,
    ) -> int:
        """Publish many messages with one key or none; return their number when all are confirmed."""
        fields = await self._fields(properties, headers)
        return await _all([self._send(body, fields, key) for body in bodies])

    async def publish_keyed(
        self,
        messages: Iterable[KeyedBody],
        properties: Properties | None = None,
        headers: Mapping[str, Value] | None = None,
    ) -> int:
        """Publish pairs of key and body; return their number when all are confirmed."""
        fields = await self._fields(properties, headers)
        return await _all([self._send(body, fields, key) for key, body in messages])

    async def publisher(self, producer: str) -> "AsyncStreamPublisher":
        """Open a named publisher: `async with await stream.publisher("name") as publisher`."""
        if not producer:
            raise ValueError("a publisher's name must not be empty")
        stored = await self._host.run(stream_calls.stored_sequences(self._host.vhost, producer))
        await self._fields(None, None)
        return AsyncStreamPublisher(self._host, producer, self._known_fields, stored)

    def _send(self, body: bytes, fields: tuple[Any, ...], key: "bytes | str | None") -> "Future[None]":
        if key is None:
            return self._host.publishing().publish(body, *fields)
        return self._host.keyed_publishing().publish(body, *fields, key_bytes(key), 0)

    async def _fields(self, properties: Properties | None, headers: Mapping[str, Value] | None) -> tuple[Any, ...]:
        if self._address is None:
            self._address = address_of(self.name, (await self.info()).partitions)
        return self._known_fields(properties, headers)

    def _known_fields(self, properties: Properties | None, headers: Mapping[str, Value] | None) -> tuple[Any, ...]:
        """Mandatory: a message for a stream that is gone must not pass for stored."""
        assert self._address is not None
        encoded = encode_properties(properties, headers) if properties is not None or headers else None
        return (*self._address, encoded, True)


class AsyncStreamPublisher:
    """A named publisher. `last_sequence` is the highest that was given out, here or by an earlier one of the name.

    After a crash, the logs of a dedicated stream's partitions may differ: then sequences behind `last_sequence` and up
    to `highest_sequence` are in some of them, and the first message needs a `sequence`.
    """

    def __init__(
        self,
        host: Host,
        producer: str,
        fields: "Callable[[Properties | None, Mapping[str, Value] | None], tuple[Any, ...]]",
        stored: tuple[int, int],
    ) -> None:
        self._host = host
        self._producer = producer
        self._fields = fields
        self.last_sequence, self.highest_sequence = stored
        self._unknown = UnknownOutcomes(*stored)

    def publish(
        self,
        body: bytes,
        key: "bytes | str | None" = None,
        properties: Properties | None = None,
        headers: Mapping[str, Value] | None = None,
        sequence: int | None = None,
    ) -> "Future[None]":
        """Send a message, in the order of the calls; await the future to wait for its confirm.

        Nothing is sent past a message that failed: what failed is sent again first, with its `sequence`.
        """
        if sequence is None:
            self._unknown.check()
        chosen = self.last_sequence + 1 if sequence is None else sequence
        if not 0 < chosen < 2**64:
            raise ValueError(f"a sequence is {chosen}; it must be at least 1 and fit into 64 bits")
        publishing = self._host.keyed_publishing(self._producer)
        if (refused := publishing.refused(chosen)) is not None:
            return refused
        self.last_sequence = max(self.last_sequence, chosen)
        # What fails keeps its sequence: later messages wait for it.
        self._unknown.confirm(chosen, chosen)
        return publishing.publish(body, *self._fields(properties, headers), key_bytes(key), chosen)

    async def publish_many(self, bodies: Iterable[bytes], key: "bytes | str | None" = None) -> int:
        """Publish many messages with one key or none; return their number when all are confirmed."""
        return await _all([self.publish(body, key) for body in bodies])

    async def publish_keyed(self, messages: Iterable[KeyedBody]) -> int:
        """Publish pairs of key and body; return their number when all are confirmed."""
        return await _all([self.publish(body, key) for key, body in messages])

    async def close(self) -> None:
        """Wait for outstanding confirms and release the name."""
        await self._host.end_publishing(self._producer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


async def _all(futures: "Sequence[Future[None]]") -> int:
    """Wait for all of them before raising the first error."""
    for outcome in await asyncio.gather(*futures, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
    return len(futures)
