"""A connection for asyncio. Unary verbs are coroutines; `publish` gives a future at once; `consume` is for `async for`.

All its calls belong on the loop it was opened on. Blocking calls of the transport run on threads of their own, so that
the loop never waits for the network.
"""

import asyncio
import logging
from asyncio import Future
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakSet

from penstock.client import admin, lease_calls, policies, staging, stream_calls
from penstock.client import limits as limit_calls
from penstock.client.admin import Call, Steps
from penstock.client.aio_publishing import AsyncPublishing
from penstock.client.aio_stream import AsyncStream
from penstock.client.closing import Grace
from penstock.client.consuming import AsyncConsumption
from penstock.client.errors import ClosedError, PenstockError, from_status
from penstock.client.got import GotMessage, get_call, read_got
from penstock.client.messages import Message
from penstock.client.opening import Options, greet, open_transport
from penstock.client.properties import Properties, encode_properties
from penstock.client.publishing import Publishing
from penstock.client.records import (
    Binding,
    DeclaredQueue,
    DeclaredStream,
    Exchange,
    Permission,
    Policy,
    Producer,
    Queue,
    QueueLeases,
    ReservedLease,
    Status,
    StreamInfo,
    TopicPermission,
    User,
    UserLimits,
    Vhost,
    VhostLimits,
)
from penstock.client.staging import AsyncStage, StageInfo
from penstock.client.stream_hosts import AsyncStreamHost
from penstock.client.transport import ConsumerOptions, Transport
from penstock.client.values import Value

__all__ = ["Connection", "connect"]

T = TypeVar("T")

DEFAULT_URI = "penstock://guest:guest@127.0.0.1:5680/"
THREADS = 8

_log = logging.getLogger("penstock")


def connect(
    uri: str = DEFAULT_URI, *, native: bool | None = None, level: str | None = None, timeout: float = 30.0
) -> "Connection":
    """A connection to open with `async with` or `await`; the arguments are those of `penstock.connect`."""
    options = Options.read(uri, native, level, timeout)
    return Connection(open_transport(options), options)


class Connection:
    """One connection of one user to one vhost. Publishers and consumers come back by themselves after it broke."""

    def __init__(self, transport: Transport, options: Options) -> None:
        self._transport = transport
        self._options = options
        self._vhost = options.address.vhost
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="penstock")
        self._publishing: AsyncPublishing | None = None
        self._bulk: Publishing | None = None
        self._consumptions: WeakSet[AsyncConsumption] = WeakSet()
        self._behind: set[Future[Any]] = set()
        self._streams = AsyncStreamHost(transport, options, self._run_while_up, self._own_publishing)
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
        """Ends consumers, waits for outstanding confirms, and hangs up. One that is gone is waited for two seconds at
        most; confirms that did not come are told by a warning in the log."""
        if self._is_closed:
            return
        self._is_closed = True
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
        self._is_hung_up = True
        await self._in_thread(self._transport.close)
        self._threads.shutdown(wait=False)

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
        """Sends the message, in the order of the calls; awaiting the future waits for its confirm.

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
        """Publishes many and returns their number once all are confirmed.

        `bodies` is iterated over on another thread.
        """
        encoded = encode_properties(properties, headers)
        self._check_open()
        if self._bulk is None or self._bulk.is_ended:
            port = self._transport.publisher(self._options.publisher)
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
    ) -> AsyncConsumption:
        """Messages as they come, for `async for`. `idle_timeout` seconds without one end the iteration."""
        self._check_open()
        port = self._transport.consumer(
            ConsumerOptions(self._vhost, queue, prefetch, auto_ack, exclusive, consumer_tag)
        )
        consumption = AsyncConsumption(port, self._transport.rpc_error, idle_timeout, asyncio.get_running_loop())
        self._consumptions.add(consumption)
        return consumption

    async def get(self, queue: str, auto_ack: bool = False) -> Message | None:
        """The next ready message, or None. Its settlement is sent behind the caller's back; `close` waits for it."""
        delivery = read_got(await self._call(*get_call(self._vhost, queue, auto_ack)))
        if delivery is None:
            return None
        return GotMessage(delivery, self._vhost, queue, auto_ack, self._settle)

    # ------------------------------------------------------------ queues

    async def declare_queue(
        self,
        name: str = "",
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Value] | None = None,
    ) -> DeclaredQueue:
        """Makes the queue, or checks that it is as asked; an empty name lets the broker choose one."""
        queue = admin.make_queue(name, durable, exclusive, auto_delete, arguments)
        return await self._run(admin.declare_queue(self._vhost, queue))

    async def delete_queue(self, name: str, if_unused: bool = False, if_empty: bool = False) -> int:
        """Gives the number of messages that went with it."""
        return await self._run(admin.delete_queue(self._vhost, name, if_unused, if_empty))

    async def purge_queue(self, name: str) -> int:
        """Drops the ready messages; gives their number."""
        return await self._run(admin.purge_queue(self._vhost, name))

    async def get_queue(self, name: str) -> Queue:
        """Raises NotFoundError when it is not there."""
        return await self._run(admin.get_queue(self._vhost, name))

    async def list_queues(self) -> list[Queue]:
        return await self._run(admin.list_queues(self._vhost))

    # ------------------------------------------------------------ leases

    async def reserve_lease(
        self, queue: str, owner: str, lease: int, messages_max: int = 0, bytes_max: int = 0
    ) -> ReservedLease:
        """Takes ready messages out of a queue under an owner's next number, or gives that lease again; 0 is no limit.
        They are read over Arrow Flight, and stay reserved until the owner acknowledges or releases them."""
        return await self._run(lease_calls.reserve_lease(self._vhost, queue, owner, lease, (messages_max, bytes_max)))

    async def ack_leases(self, queue: str, owner: str, up_to: int) -> int:
        """Settles what an owner's leases up to this number hold; gives the number of messages."""
        return await self._run(lease_calls.ack_leases(self._vhost, queue, owner, up_to))

    async def release_leases(self, queue: str, owner: str, first: int = 0) -> int:
        """Gives back what an owner's leases from this number on hold; with 0 the owner is forgotten, too. Gives the
        number of messages."""
        return await self._run(lease_calls.release_leases(self._vhost, queue, owner, first))

    async def list_leases(self, queue: str, owner: str | None = None) -> QueueLeases:
        """Who has reserved what of a queue."""
        return await self._run(lease_calls.list_leases(self._vhost, queue, owner))

    # ------------------------------------------------------------ streams

    def stream(self, name: str) -> AsyncStream:
        """A stream, or one of its partitions, to publish to and to read; nothing is asked of the broker yet."""
        self._check_open()
        return AsyncStream(self._streams, name)

    async def declare_stream(
        self,
        name: str,
        partitions: int = 1,
        max_age: str | None = None,
        max_bytes: int | None = None,
        arguments: Mapping[str, Value] | None = None,
        dedicated: bool = False,
    ) -> DeclaredStream:
        """Makes the stream, or checks that it is as asked. `max_age`: a number and a unit of s, m, h, D, M, Y.
        `dedicated`: each partition has a log of its own."""
        wanted = stream_calls.stream_arguments(max_age, max_bytes, arguments, dedicated=dedicated)
        return await self._run(stream_calls.declare_stream(self._vhost, name, partitions, wanted))

    async def delete_stream(self, name: str) -> int:
        """With all its partitions; gives the number of messages that went with it."""
        return await self._run(stream_calls.delete_stream(self._vhost, name))

    async def list_streams(self) -> list[StreamInfo]:
        return await self._run(stream_calls.list_streams(self._vhost))

    def stage(self, name: str, stream: str = "", exchange: str | None = None, routing_key: str = "") -> AsyncStage:
        """Where rows wait that one call publishes to a stream or an exchange, whole and once; nothing is asked of the
        broker yet."""
        self._check_open()
        return AsyncStage(self._run, staging.target_of(self._vhost, name, stream, exchange, routing_key))

    async def list_stages(self) -> list[StageInfo]:
        return await self._run(staging.list_stages(self._vhost))

    async def delete_stage(self, name: str) -> int:
        """With the memory of what it published; gives the number of rows that went with it."""
        return await self._run(staging.delete_stage(self._vhost, name))

    async def list_producers(self) -> list[Producer]:
        """The names under which publishers do not repeat themselves, in their order."""
        return await self._run(stream_calls.list_producers(self._vhost))

    async def delete_producer(self, name: str) -> bool:
        """What it sends again is stored again. Gives whether it was there."""
        return await self._run(stream_calls.delete_producer(self._vhost, name))

    # ------------------------------------------------------------ exchanges and bindings

    async def declare_exchange(
        self,
        name: str,
        type: str = "direct",  # noqa: A002
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, Value] | None = None,
    ) -> None:
        """Makes the exchange, or checks that it is as asked. `type` is direct, fanout, topic or headers."""
        exchange = admin.make_exchange(name, type, durable, auto_delete, internal, arguments)
        await self._run(admin.declare_exchange(self._vhost, exchange))

    async def delete_exchange(self, name: str, if_unused: bool = False) -> None:
        await self._run(admin.delete_exchange(self._vhost, name, if_unused))

    async def list_exchanges(self) -> list[Exchange]:
        return await self._run(admin.list_exchanges(self._vhost))

    async def bind_queue(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Mapping[str, Value] | None = None
    ) -> None:
        """Messages of `exchange` that match reach `queue` from now on."""
        await self._run(admin.bind(self._vhost, admin.make_binding("queue", queue, exchange, routing_key, arguments)))

    async def unbind_queue(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Mapping[str, Value] | None = None
    ) -> None:
        await self._run(admin.unbind(self._vhost, admin.make_binding("queue", queue, exchange, routing_key, arguments)))

    async def bind_exchange(
        self, destination: str, source: str, routing_key: str = "", arguments: Mapping[str, Value] | None = None
    ) -> None:
        """Messages of `source` that match go through `destination` too."""
        await self._run(
            admin.bind(self._vhost, admin.make_binding("exchange", destination, source, routing_key, arguments))
        )

    async def unbind_exchange(
        self, destination: str, source: str, routing_key: str = "", arguments: Mapping[str, Value] | None = None
    ) -> None:
        await self._run(
            admin.unbind(self._vhost, admin.make_binding("exchange", destination, source, routing_key, arguments))
        )

    async def list_bindings(self, source: str | None = None, destination: str | None = None) -> list[Binding]:
        return await self._run(admin.list_bindings(self._vhost, source, destination))

    # ------------------------------------------------------------ vhosts, users, permissions

    async def list_vhosts(self) -> list[Vhost]:
        return await self._run(admin.list_vhosts())

    async def create_vhost(self, name: str) -> bool:
        """Whether it is new."""
        return await self._run(admin.create_vhost(name))

    async def delete_vhost(self, name: str) -> None:
        """With everything in it."""
        await self._run(admin.delete_vhost(name))

    async def get_vhost_limits(self, name: str | None = None) -> VhostLimits:
        """Of this connection's vhost, unless another is named."""
        return await self._run(limit_calls.get_limits(self._vhost if name is None else name))

    async def set_vhost_limits(
        self,
        name: str | None = None,
        queues_max: int | None = None,
        connections_max: int | None = None,
        **more: int | None,
    ) -> None:
        """All at once, by the names of `VhostLimits`: one that is None or not named is no limit. What is above a new
        limit stays."""
        limits = {"queues_max": queues_max, "connections_max": connections_max, **more}
        await self._run(limit_calls.set_limits(self._vhost if name is None else name, limits))

    async def get_user_limits(self, name: str = "") -> UserLimits:
        """Of the user of this connection, unless another is named."""
        return await self._run(limit_calls.get_user_limits(name))

    async def set_user_limits(self, name: str, **limits: int | None) -> None:
        """All at once, by the names of `UserLimits`: None is no limit."""
        await self._run(limit_calls.set_user_limits(name, limits))

    async def list_users(self) -> list[User]:
        return await self._run(admin.list_users())

    async def put_user(
        self, name: str, password: str | None = None, tags: Iterable[str] | None = None, *, force: bool = False
    ) -> bool:
        """Add a user or change one; return whether the user is new. None keeps the password, or the tags. The last
        administrator stays one unless `force` is set: PreconditionFailedError."""
        return await self._run(admin.put_user(name, password, None if tags is None else tuple(tags), force))

    async def delete_user(self, name: str, *, force: bool = False) -> None:
        """Delete a user with their permissions. The last administrator is not deleted unless `force` is set:
        PreconditionFailedError."""
        await self._run(admin.delete_user(name, force))

    async def list_permissions(self, user: str | None = None, vhost: str | None = None) -> list[Permission]:
        return await self._run(admin.list_permissions(user, vhost))

    async def set_permission(
        self, user: str, vhost: str | None = None, configure: str = "", write: str = "", read: str = ""
    ) -> None:
        """Each is a regular expression that a whole name must match; without `vhost` it is this connection's."""
        chosen = self._vhost if vhost is None else vhost
        await self._run(admin.set_permission(Permission(user, chosen, configure, write, read)))

    async def clear_permission(self, user: str, vhost: str | None = None) -> None:
        await self._run(admin.clear_permission(user, self._vhost if vhost is None else vhost))

    async def list_topic_permissions(self, user: str | None = None, vhost: str | None = None) -> list[TopicPermission]:
        return await self._run(admin.list_topic_permissions(user, vhost))

    async def set_topic_permission(
        self, user: str, exchange: str, vhost: str | None = None, write: str = "", read: str = ""
    ) -> None:
        """Narrows what the user may do with a topic exchange: each is a regular expression that a whole routing key
        must match, where `{username}` and `{vhost}` stand for those names."""
        chosen = self._vhost if vhost is None else vhost
        await self._run(admin.set_topic_permission(TopicPermission(user, chosen, exchange, write, read)))

    async def clear_topic_permission(self, user: str, exchange: str | None = None, vhost: str | None = None) -> None:
        """That of one exchange, or all in the virtual host."""
        await self._run(admin.clear_topic_permission(user, self._vhost if vhost is None else vhost, exchange))

    # ------------------------------------------------------------ policies

    async def list_policies(self, operator: bool = False) -> list[Policy]:
        return await self._run(policies.list_policies(self._vhost, operator))

    async def set_policy(
        self,
        name: str,
        pattern: str,
        definition: Mapping[str, Value],
        apply_to: str = "all",
        priority: int = 0,
        operator: bool = False,
    ) -> None:
        """In force when it returns. The pattern is found anywhere in a name; `operator` bounds what others may set."""
        policy = Policy(name, pattern, apply_to, priority, definition)
        await self._run(policies.set_policy(self._vhost, policy, operator))

    async def clear_policy(self, name: str, operator: bool = False) -> None:
        await self._run(policies.clear_policy(self._vhost, name, operator))

    # ------------------------------------------------------------ the broker

    async def status(self) -> Status:
        return await self._run(admin.status())

    async def backup(self, directory: str) -> int:
        """Makes a copy of everything in an empty or new directory of the broker's machine; gives its bytes."""
        return await self._run(admin.backup(directory))

    async def export_definitions(self, vhost: str | None = None) -> bytes:
        """The definitions as JSON: all of them, or those of one vhost."""
        return await self._run(admin.export_definitions(vhost))

    async def import_definitions(self, document: bytes | str, vhost: str | None = None) -> dict[str, int]:
        """Adds what the document holds; how many of each kind were new."""
        encoded = document.encode() if isinstance(document, str) else document
        return await self._run(admin.import_definitions(encoded, vhost))

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
        return await _drive(steps, self._call)

    async def _run_while_up(self, steps: Steps[T]) -> T:
        """Also while it closes: readers store then how far their groups came. That waits as long as streams may take to
        end."""
        grace = self._grace
        if grace is None:
            return await self._run(steps)
        if self._is_hung_up:
            self._check_open()
        return await _drive(steps, lambda method, payload: self._send(method, payload, max(1, grace.hang_up_ms())))

    async def _call(self, method: str, payload: bytes) -> bytes:
        self._check_open()
        return await self._send(method, payload, self._options.timeout_ms)

    async def _send(self, method: str, payload: bytes, timeout_ms: int) -> bytes:
        try:
            return await self._in_thread(self._transport.call, method, payload, timeout_ms)
        except self._transport.rpc_error as error:
            raise from_status(*error.args) from error

    def _settle(self, call: Call) -> None:
        self._check_open()
        self._track(self._send(*call, self._options.timeout_ms))

    def _track(self, work: Coroutine[Any, Any, object]) -> None:
        """Work that nobody awaits: `close` waits for it, and its failure is logged."""
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
        options, transport = self._options.publisher, self._transport
        self._publishing = AsyncPublishing(
            lambda: transport.publisher(options),
            transport.rpc_error,
            options,
            self._options.timeout,
            asyncio.get_running_loop(),
        )
        return self._publishing

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the connection is closed; connect again")


async def _drive(steps: Steps[T], call: Callable[[str, bytes], Awaitable[bytes]]) -> T:
    """`admin.drive` for calls that are awaited."""
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(await call(*wanted))
    except StopIteration as stop:
        result: T = stop.value
        return result
