"""The verbs of a connection that make what programs publish to and consume from."""
# Generated from aio_topology.py by `make verbs`; edit that file instead.

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TypeVar

from penstock.client import admin_calls, lease_calls, peek_calls, stream_calls
from penstock.client.peek_calls import PeekedMessage
from penstock.client.records import DeclaredQueue, DeclaredStream, ReservedLease
from penstock.client.steps import Steps
from penstock.client.values import Value

__all__ = ["Topology"]

T = TypeVar("T")


class Topology(ABC):
    """Verbs about queues, exchanges, bindings, streams and leases in the vhost of a connection."""

    _vhost: str

    @abstractmethod
    def _run(self, steps: Steps[T]) -> T:
        """Run a verb to its end."""

    # ------------------------------------------------------------ queues

    def declare_queue(
        self,
        name: str = "",
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Value] | None = None,
    ) -> DeclaredQueue:
        """Create a queue, or check that it exists with these settings. The broker chooses a name for an empty one."""
        queue = admin_calls.make_queue(name, durable, exclusive, auto_delete, arguments)
        return self._run(admin_calls.declare_queue(self._vhost, queue))

    def delete_queue(self, name: str, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue; return the number of messages that were in it."""
        return self._run(admin_calls.delete_queue(self._vhost, name, if_unused, if_empty))

    def purge_queue(self, name: str) -> int:
        """Delete the ready messages of a queue; return their number."""
        return self._run(admin_calls.purge_queue(self._vhost, name))

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
        """Create an exchange, or check that it exists with these settings. `type` is direct, fanout, topic, headers."""
        exchange = admin_calls.make_exchange(name, type, durable, auto_delete, internal, arguments)
        self._run(admin_calls.declare_exchange(self._vhost, exchange))

    def delete_exchange(self, name: str, if_unused: bool = False) -> None:
        """Delete an exchange with its bindings."""
        self._run(admin_calls.delete_exchange(self._vhost, name, if_unused))

    def bind_queue(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Mapping[str, Value] | None = None
    ) -> None:
        """Route matching messages of an exchange to a queue."""
        binding = admin_calls.make_binding("queue", queue, exchange, routing_key, arguments)
        self._run(admin_calls.bind(self._vhost, binding))

    def unbind_queue(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Mapping[str, Value] | None = None
    ) -> None:
        """Delete a binding of a queue."""
        binding = admin_calls.make_binding("queue", queue, exchange, routing_key, arguments)
        self._run(admin_calls.unbind(self._vhost, binding))

    def bind_exchange(
        self, destination: str, source: str, routing_key: str = "", arguments: Mapping[str, Value] | None = None
    ) -> None:
        """Route matching messages of the exchange `source` through the exchange `destination` too."""
        binding = admin_calls.make_binding("exchange", destination, source, routing_key, arguments)
        self._run(admin_calls.bind(self._vhost, binding))

    def unbind_exchange(
        self, destination: str, source: str, routing_key: str = "", arguments: Mapping[str, Value] | None = None
    ) -> None:
        """Delete a binding between two exchanges."""
        binding = admin_calls.make_binding("exchange", destination, source, routing_key, arguments)
        self._run(admin_calls.unbind(self._vhost, binding))

    # ------------------------------------------------------------ streams

    def declare_stream(
        self,
        name: str,
        partitions: int = 1,
        max_age: str | None = None,
        max_bytes: int | None = None,
        arguments: Mapping[str, Value] | None = None,
        dedicated: bool = False,
    ) -> DeclaredStream:
        """Create a stream, or check that it exists with these settings.

        `max_age` is a number and a unit of s, m, h, D, M, Y. With `dedicated` each partition has a log of its own.
        """
        wanted = stream_calls.stream_arguments(max_age, max_bytes, arguments, dedicated=dedicated)
        return self._run(stream_calls.declare_stream(self._vhost, name, partitions, wanted))

    def delete_stream(self, name: str) -> int:
        """Delete a stream with all its partitions; return the number of messages that were in it."""
        return self._run(stream_calls.delete_stream(self._vhost, name))

    # ------------------------------------------------------------ messages

    def peek(
        self, queue: str, count: int = 1, routing_key: str | None = None, header: tuple[str, str] | None = None
    ) -> list[PeekedMessage]:
        """Return the first ready messages of a queue, which stay there; consumers notice nothing.

        `routing_key` and `header`, a name and a value, select messages. It looks at a million messages at most.
        """
        return self._run(peek_calls.peek(self._vhost, queue, count, routing_key, header))

    # ------------------------------------------------------------ leases

    def reserve_lease(
        self, queue: str, owner: str, lease: int, messages_max: int = 0, bytes_max: int = 0
    ) -> ReservedLease:
        """Reserve ready messages of a queue under an owner's next number, or return that lease again.

        They are read over Arrow Flight, and stay reserved until the owner acknowledges or releases them. 0 is no limit.
        """
        limits = (messages_max, bytes_max)
        return self._run(lease_calls.reserve_lease(self._vhost, queue, owner, lease, limits))

    def ack_leases(self, queue: str, owner: str, up_to: int) -> int:
        """Acknowledge an owner's leases up to this number; return the number of messages."""
        return self._run(lease_calls.ack_leases(self._vhost, queue, owner, up_to))

    def release_leases(self, queue: str, owner: str, first: int = 0) -> int:
        """Return the messages of an owner's leases from this number on to the queue; return their number.

        With 0 the broker forgets the owner too.
        """
        return self._run(lease_calls.release_leases(self._vhost, queue, owner, first))
