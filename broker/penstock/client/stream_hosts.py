"""State that the streams of a connection share.

It is the publisher for messages with keys, named publishers, and the objects to close with the connection. Every
connection has it; it opens nothing before a stream asks.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from penstock.client.aio_publishing import AsyncPublishing
from penstock.client.closing import Grace
from penstock.client.opening import Options
from penstock.client.publishing import Publishing
from penstock.client.reading import AsyncStreamReader
from penstock.client.steps import Steps
from penstock.client.transport import ReaderOptions, ReaderPort, Transport

__all__ = ["AsyncStreamHost", "StreamHost"]

T = TypeVar("T")


class Closing(Protocol):
    def close(self) -> None: ...


class StreamHost:
    """For threads."""

    def __init__(
        self,
        transport: Transport,
        options: Options,
        run: Callable[[Steps[Any]], Any],
        publishing: Callable[[], Publishing],
    ) -> None:
        self._transport = transport
        self._options = options
        self._run = run
        self.publishing = publishing
        self._lock = Lock()
        self._keyed: Publishing | None = None
        self._kept: WeakSet[Closing] = WeakSet()
        self._named: WeakSet[Publishing] = WeakSet()

    @property
    def vhost(self) -> str:
        return self._options.address.vhost

    @property
    def rpc_error(self) -> type[Exception]:
        return self._transport.rpc_error

    def run(self, steps: Steps[T]) -> T:
        answer: T = self._run(steps)
        return answer

    def keyed_publishing(self) -> Publishing:
        with self._lock:
            if self._keyed is None or self._keyed.is_ended:
                if self._keyed is not None:
                    self._keyed.close()
                self._keyed = self.named_publishing("")
            return self._keyed

    def named_publishing(self, producer: str) -> Publishing:
        own = self._options.new_publisher
        port = self._transport.publisher(replace(self._options.publisher, producer=producer) if producer else own())
        publishing = Publishing(port, self._transport.rpc_error, self._options.timeout_ms)
        if producer:
            self._named.add(publishing)
        return publishing

    def open_reader(self, options: ReaderOptions) -> ReaderPort:
        return self._transport.reader(options)

    def keep(self, closing: Closing) -> None:
        self._kept.add(closing)

    def close(self, grace: Grace) -> None:
        with self._lock:
            keyed, self._keyed = self._keyed, None
        if keyed is not None:
            keyed.close(grace)
        for publishing in list(self._named):
            publishing.close(grace)
        for closing in list(self._kept):
            closing.close()


class AsyncStreamHost:
    """For a loop."""

    def __init__(
        self,
        transport: Transport,
        options: Options,
        run: Callable[[Steps[Any]], Any],
        publishing: Callable[[], AsyncPublishing],
    ) -> None:
        self._transport = transport
        self._options = options
        self._run = run
        self.publishing = publishing
        self._keyed: dict[str, AsyncPublishing] = {}
        self._readers: WeakSet[AsyncStreamReader] = WeakSet()

    @property
    def vhost(self) -> str:
        return self._options.address.vhost

    @property
    def rpc_error(self) -> type[Exception]:
        return self._transport.rpc_error

    async def run(self, steps: Steps[T]) -> T:
        answer: T = await self._run(steps)
        return answer

    def keyed_publishing(self, producer: str = "") -> AsyncPublishing:
        found = self._keyed.get(producer)
        if found is None:
            options, transport = replace(self._options.publisher, producer=producer), self._transport
            own = self._options.new_publisher
            found = self._keyed[producer] = AsyncPublishing(
                lambda: transport.publisher(options if producer else own()),
                transport.rpc_error,
                options,
                self._options.timeout,
                asyncio.get_running_loop(),
            )
        return found

    async def end_publishing(self, producer: str, grace: Grace | None = None) -> None:
        publishing = self._keyed.pop(producer, None)
        if publishing is not None:
            await publishing.close(grace or Grace(self._options.timeout))

    def open_reader(self, options: ReaderOptions) -> ReaderPort:
        return self._transport.reader(options)

    def keep(self, reader: AsyncStreamReader) -> None:
        self._readers.add(reader)

    async def close(self, grace: Grace) -> None:
        for reader in list(self._readers):
            await reader.close()
        for producer in list(self._keyed):
            await self.end_publishing(producer, grace)
