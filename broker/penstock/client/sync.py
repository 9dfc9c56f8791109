"""A connection for threads.

Every verb blocks until the broker answered; any thread may call any of them at any time.
"""

from collections.abc import Iterable, Mapping
from threading import Lock
from types import TracebackType
from typing import Self, TypeVar
from weakref import WeakSet

from penstock.client import admin, lease_calls, policies, staging, stream_calls
from penstock.client import limits as limit_calls
from penstock.client.admin import Call, Steps
from penstock.client.closing import Grace
from penstock.client.consuming import Consumption
from penstock.client.errors import ClosedError, from_status
from penstock.client.got import GotMessage, get_call, read_got
from penstock.client.messages import Message
from penstock.client.opening import Options, greet, open_transport
from penstock.client.properties import Properties, encode_properties
from penstock.client.publishing import NothingSentError, Publishing
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
from penstock.client.staging import Stage, StageInfo
from penstock.client.stream import Stream
from penstock.client.stream_hosts import StreamHost
from penstock.client.transport import ConsumerOptions, Transport
from penstock.client.values import Value

__all__ = ["Connection", "connect"]

T = TypeVar("T")

DEFAULT_URI = "penstock://guest:guest@127.0.0.1:5680/"


def connect(
    uri: str = DEFAULT_URI, *, native: bool | None = None, level: str | None = None, timeout: float = 30.0
) -> "Connection":
    """Connects to a broker and checks the credentials.

    `native` None takes the native module where it is there; `level` is what confirms promise: 'os', 'disk', or None for
    the queue's or the message's own; `timeout` in seconds bounds calls and waits for confirms.
    """
    options = Options.read(uri, native, level, timeout)
    transport = open_transport(options)
    try:
        greet(transport, options)
    except BaseException:
        transport.close()
        raise
    return Connection(transport, options)


class Connection:
    """One connection of one user to one vhost. Publishers and consumers come back by themselves after it broke."""

    def __init__(self, transport: Transport, options: Options) -> None:
        self._transport = transport
        self._options = options
        self._vhost = options.address.vhost
        self._lock = Lock()
        self._publishing: Publishing | None = None
        self._consumptions: WeakSet[Consumption] = WeakSet()
        self._streams = StreamHost(transport, options, self._run_while_up, self._publisher)
        self._is_closed = False
        # Once it is being closed.
        self._grace: Grace | None = None
        self._is_hung_up = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends consumers, waits for outstanding confirms, and hangs up. One that is gone is waited for two seconds at
        most; confirms that did not come are told by a warning in the log."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            publishing, self._publishing = self._publishing, None
            grace = self._grace = Grace(self._options.timeout)
        consumptions = list(self._consumptions)
        for consumption in consumptions:
            consumption.begin_close()
        self._streams.close(grace)
        if publishing is not None:
            publishing.close(grace)
        for consumption in consumptions:
            consumption.close(grace)
        self._is_hung_up = True
        self._transport.close()

    # ------------------------------------------------------------ messages

    def publish(
        self,
        body: bytes,
        exchange: str = "",
        routing_key: str = "",
        properties: Properties | None = None,
        headers: Mapping[str, Value] | None = None,
        mandatory: bool = False,
    ) -> None:
        """Returns when the broker confirmed the message. Threads that publish at once share batches."""
        encoded = encode_properties(properties, headers) if properties is not None or headers else None
        try:
            self._publisher().publish(body, exchange, routing_key, encoded, mandatory)
        except NothingSentError:
            # It ended since the last message; whether a new one can be had, the broker says now.
            self._publisher().publish(body, exchange, routing_key, encoded, mandatory)

    def publish_many(
        self,
        bodies: Iterable[bytes],
        exchange: str = "",
        routing_key: str = "",
        properties: Properties | None = None,
        headers: Mapping[str, Value] | None = None,
        mandatory: bool = False,
    ) -> int:
        """Publishes many and returns their number once all are confirmed.

        Raises the first refusal once all have an outcome.
        """
        encoded = encode_properties(properties, headers)
        return self._publisher().publish_many(bodies, exchange, routing_key, encoded, mandatory)

    def consume(
        self,
        queue: str,
        prefetch: int = 1_000,
        auto_ack: bool = False,
        exclusive: bool = False,
        consumer_tag: str = "",
        idle_timeout: float | None = None,
    ) -> Consumption:
        """Messages as they come, to iterate over. `idle_timeout` seconds without one end the iteration."""
        self._check_open()
        port = self._transport.consumer(
            ConsumerOptions(self._vhost, queue, prefetch, auto_ack, exclusive, consumer_tag)
        )
        consumption = Consumption(port, self._transport.rpc_error, idle_timeout)
        self._consumptions.add(consumption)
        return consumption

    def get(self, queue: str, auto_ack: bool = False) -> Message | None:
        """The next ready message, or None. Settling it is a call of its own, and `consume` is far cheaper for many."""
        delivery = read_got(self._call(*get_call(self._vhost, queue, auto_ack)))
        if delivery is None:
            return None
        return GotMessage(delivery, self._vhost, queue, auto_ack, self._settle)

    # ------------------------------------------------------------ queues

    def declare_queue(
        self,
        name: str = "",
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Value] | None = None,
    ) -> DeclaredQueue:
        """Makes the queue, or checks that it is as asked; an empty name lets the broker choose one."""
        queue = admin.make_queue(name, durable, exclusive, auto_delete, arguments)
        return self._run(admin.declare_queue(self._vhost, queue))

    def delete_queue(self, name: str, if_unused: bool = False, if_empty: bool = False) -> int:
        """Gives the number of messages that went with it."""
        return self._run(admin.delete_queue(self._vhost, name, if_unused, if_empty))

    def purge_queue(self, name: str) -> int:
        """Drops the ready messages; gives their number."""
        return self._run(admin.purge_queue(self._vhost, name))

    def get_queue(self, name: str) -> Queue:
        """Raises NotFoundError when it is not there."""
        return self._run(admin.get_queue(self._vhost, name))

    def list_queues(self) -> list[Queue]:
        return self._run(admin.list_queues(self._vhost))

    # ------------------------------------------------------------ leases

    def reserve_lease(
        self, queue: str, owner: str, lease: int, messages_max: int = 0, bytes_max: int = 0
    ) -> ReservedLease:
        """Takes ready messages out of a queue under an owner's next number, or gives that lease again; 0 is no limit.
        They are read over Arrow Flight, and stay reserved until the owner acknowledges or releases them."""
        return self._run(lease_calls.reserve_lease(self._vhost, queue, owner, lease, (messages_max, bytes_max)))

    def ack_leases(self, queue: str, owner: str, up_to: int) -> int:
        """Settles what an owner's leases up to this number hold; gives the number of messages."""
        return self._run(lease_calls.ack_leases(self._vhost, queue, owner, up_to))

    def release_leases(self, queue: str, owner: str, first: int = 0) -> int:
        """Gives back what an owner's leases from this number on hold; with 0 the owner is forgotten, too. Gives the
        number of messages."""
        return self._run(lease_calls.release_leases(self._vhost, queue, owner, first))

    def list_leases(self, queue: str, owner: str | None = None) -> QueueLeases:
        """Who has reserved what of a queue."""
        return self._run(lease_calls.list_leases(self._vhost, queue, owner))

    # ------------------------------------------------------------ streams

    def stream(self, name: str) -> Stream:
        """A stream, or one of its partitions, to publish to and to read; nothing is asked of the broker yet."""
        self._check_open()
        return Stream(self._streams, name)

    def declare_stream(
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
        return self._run(stream_calls.declare_stream(self._vhost, name, partitions, wanted))

    def delete_stream(self, name: str) -> int:
        """With all its partitions; gives the number of messages that went with it."""
        return self._run(stream_calls.delete_stream(self._vhost, name))

    def list_streams(self) -> list[StreamInfo]:
        return self._run(stream_calls.list_streams(self._vhost))

    def stage(self, name: str, stream: str = "", exchange: str | None = None, routing_key: str = "") -> Stage:
        """Where rows wait that one call publishes to a stream or an exchange, whole and once; nothing is asked of the
        broker yet."""
        self._check_open()
        return Stage(self._run, staging.target_of(self._vhost, name, stream, exchange, routing_key))

    def list_stages(self) -> list[StageInfo]:
        return self._run(staging.list_stages(self._vhost))

    def delete_stage(self, name: str) -> int:
        """With the memory of what it published; gives the number of rows that went with it."""
        return self._run(staging.delete_stage(self._vhost, name))

    def list_producers(self) -> list[Producer]:
        """The names under which publishers do not repeat themselves, in their order."""
        return self._run(stream_calls.list_producers(self._vhost))

    def delete_producer(self, name: str) -> bool:
        """What it sends again is stored again. Gives whether it was there."""
        return self._run(stream_calls.delete_producer(self._vhost, name))

    # ------------------------------------------------------------ exchanges and bindings

    def declare_exchange(
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
        self._run(admin.declare_exchange(self._vhost, exchange))

    def delete_exchange(self, name: str, if_unused: bool = False) -> None:
        self._run(admin.delete_exchange(self._vhost, name, if_unused))

    def list_exchanges(self) -> list[Exchange]:
        return self._run(admin.list_exchanges(self._vhost))

    def bind_queue(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Mapping[str, Value] | None = None
    ) -> None:
        """Messages of `exchange` that match reach `queue` from now on."""
        self._run(admin.bind(self._vhost, admin.make_binding("queue", queue, exchange, routing_key, arguments)))

    def unbind_queue(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Mapping[str, Value] | None = None
    ) -> None:
        self._run(admin.unbind(self._vhost, admin.make_binding("queue", queue, exchange, routing_key, arguments)))

    def bind_exchange(
        self, destination: str, source: str, routing_key: str = "", arguments: Mapping[str, Value] | None = None
    ) -> None:
        """Messages of `source` that match go through `destination` too."""
        self._run(admin.bind(self._vhost, admin.make_binding("exchange", destination, source, routing_key, arguments)))

    def unbind_exchange(
        self, destination: str, source: str, routing_key: str = "", arguments: Mapping[str, Value] | None = None
    ) -> None:
        self._run(
            admin.unbind(self._vhost, admin.make_binding("exchange", destination, source, routing_key, arguments))
        )

    def list_bindings(self, source: str | None = None, destination: str | None = None) -> list[Binding]:
        return self._run(admin.list_bindings(self._vhost, source, destination))

    # ------------------------------------------------------------ vhosts, users, permissions

    def list_vhosts(self) -> list[Vhost]:
        return self._run(admin.list_vhosts())

    def create_vhost(self, name: str) -> bool:
        """Whether it is new."""
        return self._run(admin.create_vhost(name))

    def delete_vhost(self, name: str) -> None:
        """With everything in it."""
        self._run(admin.delete_vhost(name))

    def get_vhost_limits(self, name: str | None = None) -> VhostLimits:
        """Of this connection's vhost, unless another is named."""
        return self._run(limit_calls.get_limits(self._vhost if name is None else name))

    def set_vhost_limits(
        self,
        name: str | None = None,
        queues_max: int | None = None,
        connections_max: int | None = None,
        **more: int | None,
    ) -> None:
        """All at once, by the names of `VhostLimits`: one that is None or not named is no limit. What is above a new
        limit stays."""
        limits = {"queues_max": queues_max, "connections_max": connections_max, **more}
        self._run(limit_calls.set_limits(self._vhost if name is None else name, limits))

    def get_user_limits(self, name: str = "") -> UserLimits:
        """Of the user of this connection, unless another is named."""
        return self._run(limit_calls.get_user_limits(name))

    def set_user_limits(self, name: str, **limits: int | None) -> None:
        """All at once, by the names of `UserLimits`: None is no limit."""
        self._run(limit_calls.set_user_limits(name, limits))

    def list_users(self) -> list[User]:
        return self._run(admin.list_users())

    def put_user(
        self, name: str, password: str | None = None, tags: Iterable[str] | None = None, *, force: bool = False
    ) -> bool:
        """Add a user or change one; return whether the user is new. None keeps the password, or the tags. The last
        administrator stays one unless `force` is set: PreconditionFailedError."""
        return self._run(admin.put_user(name, password, None if tags is None else tuple(tags), force))

    def delete_user(self, name: str, *, force: bool = False) -> None:
        """Delete a user with their permissions. The last administrator is not deleted unless `force` is set:
        PreconditionFailedError."""
        self._run(admin.delete_user(name, force))

    def list_permissions(self, user: str | None = None, vhost: str | None = None) -> list[Permission]:
        return self._run(admin.list_permissions(user, vhost))

    def set_permission(
        self, user: str, vhost: str | None = None, configure: str = "", write: str = "", read: str = ""
    ) -> None:
        """Each is a regular expression that a whole name must match; without `vhost` it is this connection's."""
        chosen = self._vhost if vhost is None else vhost
        self._run(admin.set_permission(Permission(user, chosen, configure, write, read)))

    def clear_permission(self, user: str, vhost: str | None = None) -> None:
        self._run(admin.clear_permission(user, self._vhost if vhost is None else vhost))

    def list_topic_permissions(self, user: str | None = None, vhost: str | None = None) -> list[TopicPermission]:
        return self._run(admin.list_topic_permissions(user, vhost))

    def set_topic_permission(
        self, user: str, exchange: str, vhost: str | None = None, write: str = "", read: str = ""
    ) -> None:
        """Narrows what the user may do with a topic exchange: each is a regular expression that a whole routing key
        must match, where `{username}` and `{vhost}` stand for those names."""
        chosen = self._vhost if vhost is None else vhost
        self._run(admin.set_topic_permission(TopicPermission(user, chosen, exchange, write, read)))

    def clear_topic_permission(self, user: str, exchange: str | None = None, vhost: str | None = None) -> None:
        """That of one exchange, or all in the virtual host."""
        self._run(admin.clear_topic_permission(user, self._vhost if vhost is None else vhost, exchange))

    # ------------------------------------------------------------ policies

    def list_policies(self, operator: bool = False) -> list[Policy]:
        return self._run(policies.list_policies(self._vhost, operator))

    def set_policy(
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
        self._run(policies.set_policy(self._vhost, policy, operator))

    def clear_policy(self, name: str, operator: bool = False) -> None:
        self._run(policies.clear_policy(self._vhost, name, operator))

    # ------------------------------------------------------------ the broker

    def status(self) -> Status:
        return self._run(admin.status())

    def backup(self, directory: str) -> int:
        """Makes a copy of everything in an empty or new directory of the broker's machine; gives its bytes."""
        return self._run(admin.backup(directory))

    def export_definitions(self, vhost: str | None = None) -> bytes:
        """The definitions as JSON: all of them, or those of one vhost."""
        return self._run(admin.export_definitions(vhost))

    def import_definitions(self, document: bytes | str, vhost: str | None = None) -> dict[str, int]:
        """Adds what the document holds; how many of each kind were new."""
        encoded = document.encode() if isinstance(document, str) else document
        return self._run(admin.import_definitions(encoded, vhost))

    # ------------------------------------------------------------ how

    def _run(self, steps: Steps[T]) -> T:
        return admin.drive(steps, self._call)

    def _run_while_up(self, steps: Steps[T]) -> T:
        """Also while it closes: readers store then how far their groups came. That waits as long as streams may take to
        end."""
        grace = self._grace
        if grace is None:
            return self._run(steps)
        if self._is_hung_up:
            self._check_open()
        return admin.drive(steps, lambda method, payload: self._send(method, payload, max(1, grace.hang_up_ms())))

    def _call(self, method: str, payload: bytes) -> bytes:
        self._check_open()
        return self._send(method, payload, self._options.timeout_ms)

    def _send(self, method: str, payload: bytes, timeout_ms: int) -> bytes:
        try:
            return self._transport.call(method, payload, timeout_ms)
        except self._transport.rpc_error as error:
            raise from_status(*error.args) from error

    def _settle(self, call: Call) -> None:
        self._call(*call)

    def _publisher(self) -> Publishing:
        publishing = self._publishing
        if publishing is not None and not publishing.is_ended:
            return publishing
        with self._lock:
            self._check_open()
            if self._publishing is None or self._publishing.is_ended:
                if self._publishing is not None:
                    self._publishing.close()
                port = self._transport.publisher(self._options.publisher)
                self._publishing = Publishing(port, self._transport.rpc_error, self._options.timeout_ms)
            return self._publishing

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the connection is closed; connect again")
