"""A connection for asyncio. Verbs are coroutines; `publish` returns a future at once; `consume` is for `async for`.

Use a connection only on the loop on which it was opened. Blocking calls of the transport run on threads of their own,
so the loop never waits for the network.
"""

import asyncio
import logging
from asyncio import Future
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakSet

from penstock.client.aio_admin import AsyncAdmin
from penstock.client.aio_publishing import AsyncPublishing
from penstock.client.aio_stage import AsyncStage
from penstock.client.aio_stream import AsyncStream
from penstock.client.aio_topology import AsyncTopology
from penstock.client.closing import Grace
from penstock.client.consuming import AsyncConsumption
from penstock.client.errors import DEADLINE_EXCEEDED, ClosedError, DeadlineError, PenstockError, from_status
from penstock.client.got import GotMessage, get_call, read_got
from penstock.client.messages import Message
from penstock.client.opening import Options, greet, open_transport
from penstock.client.properties import Properties, encode_properties
from penstock.client.publishing import Publishing
from penstock.client.repeatable import is_repeatable
from penstock.client.staging import target_of
from penstock.client.steps import Call, Steps, drive_async
from penstock.client.stream_calls import delete_producer
from penstock.client.stream_hosts import AsyncStreamHost
from penstock.client.transport import ConsumerOptions, Transport
from penstock.client.values import Value

__all__ = ["Connection", "connect"]

T = TypeVar("T")

DEFAULT_URI = "penstock://guest:guest@127.0.0.1:5680/"
THREADS = 8

_log = logging.getLogger("penstock")


def connect(
    uri: str = DEFAULT_URI,
    *,
    native: bool | None = None,
    durability: str | None = None,
    timeout: float = 30.0,
    deduplicate: bool = False,
) -> "Connection":
    """Return a connection to open with `async with` or `await`. The arguments are those of `penstock.connect`."""
    options = Options.read(uri, native, durability, timeout, deduplicate)
    return Connection(open_transport(options), options)


class Connection(AsyncTopology):
    """A connection of one user to one vhost. Publishers and consumers reconnect by themselves."""

    def __init__(self, transport: Transport, options: Options) -> None:
        self._transport = transport
        self._options = options
        self._vhost = options.address.vhost
        self._threads = _threads()
        self._publishing: AsyncPublishing | None = None
        self._bulk: Publishing | None = None
        self._consumptions: WeakSet[AsyncConsumption] = WeakSet()
        self._behind: set[Future[Any]] = set()
        self._streams = AsyncStreamHost(transport, options, self._run_while_up, self._own_publishing)
        self.admin = AsyncAdmin(self._run, self._vhost)
        self._is_closed = False
        # Once it is being closed.
        self._grace: Grace | None = None
        self._is_hung_up = False

    def __await__(self) -> Generator[Any, None, Self]:
        return self._open().__await__()

    async def __aenter__(self) -> Self:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End consumers, wait for outstanding confirms, and hang up.

        This waits two seconds at most for a broker that is gone; the log warns of confirms that did not come.
        """
        if self._is_closed:
            return
        self._is_closed = True
        # Calls that wait for a leader may have all threads until their time is over.
        busy, self._threads = self._threads, _threads()
        grace = self._grace = Grace(self._options.timeout)
        consumptions = list(self._consumptions)
        for consumption in consumptions:
            consumption.begin_close()
        await self._streams.close(grace)
        if self._behind:
            await asyncio.wait(self._behind, timeout=self._options.timeout)
        publishing, self._publishing = self._publishing, None
        if publishing is not None:
            await publishing.close(grace)
        if self._bulk is not None:
            await self._in_thread(self._bulk.close, grace)
        await asyncio.gather(*(consumption.close(grace) for consumption in consumptions))
        await self._give_up_names(grace)
        self._is_hung_up = True
        await self._in_thread(self._transport.close)
        for threads in (busy, self._threads):
            threads.shutdown(wait=False)

    # ------------------------------------------------------------ messages

    def publish(
        self,
        body: bytes,
        exchange: str = "",
        routing_key: str = "",
        properties: Properties | None = None,
        headers: Mapping[str, Value] | None = None,
        mandatory: bool = False,
    ) -> "Future[None]":
        """Send a message, in the order of the calls; await the future to wait for its confirm.

        Messages that wait share batches: publish many before awaiting, or from many tasks.
        """
        encoded = encode_properties(properties, headers) if properties is not None or headers else None
        return self._own_publishing().publish(body, exchange, routing_key, encoded, mandatory)

    async def publish_many(
        self,
        bodies: Iterable[bytes],
        exchange: str = "",
        routing_key: str = "",
        properties: Properties | None = None,
        headers: Mapping[str, Value] | None = None,
        mandatory: bool = False,
    ) -> int:
        """Publish many messages; return their number when all are confirmed.

        Another thread iterates over `bodies`.
        """
        encoded = encode_properties(properties, headers)
        self._check_open()
        if self._bulk is None or self._bulk.is_ended:
            port = self._transport.publisher(self._options.new_publisher())
            self._bulk = Publishing(port, self._transport.rpc_error, self._options.timeout_ms)
        return await self._in_thread(self._bulk.publish_many, bodies, exchange, routing_key, encoded, mandatory)

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
    ) -> AsyncConsumption:
        """Return the messages of a queue as they come, for `async for`.

        `idle_timeout` seconds without a message end the iteration. Consumers of a higher `priority` get messages first,
        as long as their prefetch allows. The broker ends a consumer that keeps a message unsettled for longer than
        `consumer_timeout_ms`; without it the queue's limit counts.
        """
        self._check_open()
        options = ConsumerOptions(self._vhost, queue, prefetch, auto_ack, exclusive, consumer_tag)
        port = self._transport.consumer(options.with_order(priority, consumer_timeout_ms))
        consumption = AsyncConsumption(port, self._transport.rpc_error, idle_timeout, asyncio.get_running_loop())
        self._consumptions.add(consumption)
        return consumption

    async def get(self, queue: str, auto_ack: bool = False) -> Message | None:
        """Return the next ready message, or None. Its settlement is sent in the background; `close` waits for it."""
        delivery = read_got(await self._call(*get_call(self._vhost, queue, auto_ack)))
        if delivery is None:
            return None
        return GotMessage(delivery, self._vhost, queue, auto_ack, self._settle)

    # ------------------------------------------------------------ streams

    def stream(self, name: str) -> AsyncStream:
        """Return a stream, or one of its partitions, to publish to and to read, without asking the broker."""
        self._check_open()
        return AsyncStream(self._streams, name)

    def stage(self, name: str, stream: str = "", exchange: str | None = None, routing_key: str = "") -> AsyncStage:
        """Return a stage, without asking the broker. Rows wait in it until one call publishes them, whole and once."""
        self._check_open()
        return AsyncStage(self._run, target_of(self._vhost, name, stream, exchange, routing_key))

    # ------------------------------------------------------------ how

    async def _open(self) -> Self:
        try:
            await self._in_thread(greet, self._transport, self._options)
        except BaseException:
            await self._in_thread(self._transport.close)
            self._threads.shutdown(wait=False)
            raise
        return self

    async def _run(self, steps: Steps[T]) -> T:
        return await drive_async(steps, self._call)

    async def _run_while_up(self, steps: Steps[T]) -> T:
        """Run a verb to its end, even while the connection closes.

        Readers then store how far their groups came, within the time that streams may take to end.
        """
        grace = self._grace
        if grace is None:
            return await self._run(steps)
        if self._is_hung_up:
            self._check_open()
        return await drive_async(steps, lambda method, payload: self._send(method, payload, max(1, grace.hang_up_ms())))

    async def _call(self, method: str, payload: bytes) -> bytes:
        self._check_open()
        return await self._send(method, payload, self._options.timeout_ms)

    async def _send(self, method: str, payload: bytes, timeout_ms: int) -> bytes:
        until = monotonic() + timeout_ms / 1_000

        def call() -> bytes:
            # It may have waited for a thread.
            left_ms = int((until - monotonic()) * 1_000)
            if left_ms < 1:
                text = f"{method} had no thread within {timeout_ms} ms; make fewer calls at once, or allow more time"
                raise DeadlineError(text, code=DEADLINE_EXCEEDED)
            return self._transport.call(method, payload, left_ms, is_repeatable(method))

        try:
            return await self._in_thread(call)
        except self._transport.rpc_error as error:
            raise from_status(*error.args) from error

    def _settle(self, call: Call) -> None:
        self._check_open()
        self._track(self._send(*call, self._options.timeout_ms))

    def _track(self, work: Coroutine[Any, Any, object]) -> None:
        """Keep background work: `close` waits for it, and its failure is logged."""
        task = asyncio.ensure_future(work)
        self._behind.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: "Future[Any]") -> None:
        self._behind.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, PenstockError):
            _log.warning("a message from get was not settled and returns to its queue: %s", error)

    def _own_publishing(self) -> AsyncPublishing:
        return self._publishing or self._begin_publishing()

    def _begin_publishing(self) -> AsyncPublishing:
        self._check_open()
        options, transport = self._options, self._transport
        self._publishing = AsyncPublishing(
            lambda: transport.publisher(options.new_publisher()),
            transport.rpc_error,
            options.publisher,
            self._options.timeout,
            asyncio.get_running_loop(),
        )
        return self._publishing

    async def _give_up_names(self, grace: Grace) -> None:
        """Delete the names that were drawn for publishers. One that stays is forgotten when it was unused for long."""
        for name in self._options.drawn:
            with suppress(PenstockError):
                await drive_async(
                    delete_producer(self._vhost, name),
                    lambda method, payload: self._send(method, payload, max(1, grace.hang_up_ms())),
                )

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the connection is closed; connect again")


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="penstock")
