"""Rules for whole streams.

A stream is one queue of that type. A partitioned stream is an exchange that routes by key and a queue for each
partition, declared and deleted in one decision.

Entries are in an order in which every prefix is harmless: if a power failure cuts the write, no client was answered,
and a stream that lacks partitions takes no messages until it is declared again or deleted. The exchange comes first: a
queue with the name of a partition belongs to the new stream only if its exchange exists already.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from penstock.metadata import bindings, exchanges, queues
from penstock.metadata.argument_rules import check_partition_count
from penstock.metadata.commands import Bind, DeclareExchange, DeclareQueue, DeclareStream, DeleteStream
from penstock.metadata.effects import Decision, Done, StreamDeclared
from penstock.metadata.limit_rules import check_dedicated, check_queues
from penstock.metadata.removal import remove_exchange, remove_queue
from penstock.metadata.topology import VhostTopology
from penstock.model.errors import InvalidArgumentError, LimitReachedError, NotFoundError, PreconditionFailedError
from penstock.model.names import (
    NUMBERS_USED_UP,
    QUEUE_ID_MAX,
    ConnectionId,
    ExchangeName,
    QueueName,
    RoutingKey,
    check_name,
)
from penstock.model.records import (
    STAGE_PREFIX,
    X_DEDICATED,
    X_PARTITIONS,
    X_QUEUE_TYPE,
    Binding,
    DestinationKind,
    Exchange,
    ExchangeKind,
    Queue,
    QueueKind,
)

NOBODY: Final = ConnectionId(0)
"""Streams are never exclusive, so the connection does not matter."""


def declare(state: VhostTopology, command: DeclareStream) -> Decision:
    thing = state.thing("stream", command.name)
    check_partition_count(thing, command.partition_count)
    if not command.name:
        raise InvalidArgumentError(thing, "has no name", "name the stream", field="name")
    _check_is_no_partition(state, command.name)
    _check_partition_count(state, command)
    wanted = _parts(command)
    _check_all(state, wanted)
    decision = Decision(StreamDeclared(tuple(one.name for one in wanted.queues), is_new=False))
    made = [] if wanted.exchange is None else [exchanges.declare(state, wanted.exchange)]
    for number, queue in enumerate(wanted.queues):
        made.append(queues.declare(state, queue))
        made += (bindings.bind(state, one) for one in wanted.binds[number : number + 1])
    for each in made:
        decision.entries += each.entries
        decision.changes += each.changes
    decision.answer = StreamDeclared(tuple(one.name for one in wanted.queues), is_new=bool(decision.changes))
    return decision


def delete(state: VhostTopology, command: DeleteStream) -> Decision:
    """Delete a stream, queues first: one that lacks queues can be deleted again, one without its exchange could not."""
    names = partitions(state, command.name)
    if not is_partitioned(state, command.name):
        queues.check_is_no_partition(state, names[0])
    decision = Decision(Done())
    for name in names:
        remove_queue(state, name, decision)
    if _exchange(state, command.name) is not None:
        remove_exchange(state, ExchangeName(command.name), decision)
    return decision


def partitions(state: VhostTopology, name: str) -> list[QueueName]:
    """Return the queues of a stream in order, one for a single partition. Raises when the name is no stream's."""
    if _exchange(state, name) is not None:
        return [QueueName(binding.destination) for binding in routes_in_order(state, ExchangeName(name))]
    return [stream_queue(state, QueueName(name)).name]


def is_partitioned(state: VhostTopology, name: str) -> bool:
    """Return whether the name is that of a stream with an exchange and partitions."""
    return _exchange(state, name) is not None


def declared_count(state: VhostTopology, name: str) -> int | None:
    """Return with how many partitions a stream was declared; None for a single queue, or one that was made by hand."""
    exchange = _exchange(state, name)
    return None if exchange is None else exchange.partition_count or None


def stream_queue(state: VhostTopology, name: QueueName) -> Queue:
    """Return a partition's queue. Raises when it does not exist or has another type."""
    thing = state.thing("stream", name)
    queue = state.queues.get(name)
    if queue is None:
        raise NotFoundError(thing)
    if not queue.is_stream:
        way_out = "consume or get its messages, or declare a stream under another name"
        raise InvalidArgumentError(thing, "is a queue of type 'classic', not a stream", way_out, field="partition")
    return queue


def routes_in_order(state: VhostTopology, name: ExchangeName) -> list[Binding]:
    return sorted(state.bindings_from(name), key=lambda binding: int(binding.routing_key))


def stream_names(state: VhostTopology) -> list[str]:
    """Return streams by name, without stages and partitions, which are parts of their streams."""
    names: set[str] = {exchange.name for exchange in state.exchanges.values() if _is_super(exchange)}
    names |= {name for name in state.streams if not name.startswith(STAGE_PREFIX) and owner_of(state, name) is None}
    return sorted(names)


def owner_of(state: VhostTopology, name: QueueName) -> Exchange | None:
    """Return the exchange of the stream that has this queue as a partition."""
    for binding in state.bindings_to(DestinationKind.QUEUE, name):
        exchange = state.exchanges[binding.source]
        if _is_super(exchange):
            return exchange
    return None


class _Parts:
    """The parts of a stream, as commands."""

    def __init__(self, queues: list[DeclareQueue], exchange: DeclareExchange | None, binds: list[Bind]) -> None:
        self.queues = queues
        self.exchange = exchange
        self.binds = binds


def _parts(command: DeclareStream) -> _Parts:
    arguments = {X_QUEUE_TYPE: QueueKind.STREAM.value, **command.arguments}
    wanted = DeclareQueue(QueueName(command.name), NOBODY, arguments=arguments)
    if command.partition_count == 1:
        return _Parts([wanted], None, [])
    names = [QueueName(check_name("stream", f"{command.name}-{number}")) for number in range(command.partition_count)]
    source = ExchangeName(command.name)
    kind = ExchangeKind.SUPER_STREAM.value
    exchange = DeclareExchange(source, kind, arguments={X_PARTITIONS: command.partition_count})
    binds = [
        Bind(Binding(source, DestinationKind.QUEUE, name, RoutingKey(str(number))), NOBODY)
        for number, name in enumerate(names)
    ]
    return _Parts([replace(wanted, name=name) for name in names], exchange, binds)


def _check_all(state: VhostTopology, wanted: _Parts) -> None:
    """Check everything that could refuse a part, before any is made."""
    missing_count = sum(queues.check(state, one) is None for one in wanted.queues)
    if wanted.exchange is not None:
        exchanges.check(state, wanted.exchange)
        _check_partition_names(state, wanted)
        _check_places(state, wanted.binds)
    if wanted.queues[0].arguments[X_QUEUE_TYPE] != QueueKind.STREAM:
        thing = state.thing("stream", wanted.queues[0].name)
        raise InvalidArgumentError(
            thing, f"has an '{X_QUEUE_TYPE}' other than 'stream'", "leave the argument out", field=X_QUEUE_TYPE
        )
    if state.next_queue_id + missing_count - 1 > QUEUE_ID_MAX:
        thing = state.thing("stream", wanted.queues[0].name)
        raise LimitReachedError(thing, *NUMBERS_USED_UP, limit=QUEUE_ID_MAX)
    check_queues(state, state.thing("stream", wanted.queues[0].name), missing_count)
    if wanted.queues[0].arguments.get(X_DEDICATED) is True:
        check_dedicated(state, state.thing("stream", wanted.queues[0].name), missing_count)


def _check_is_no_partition(state: VhostTopology, name: str) -> None:
    """Check that a stream's name is not that of a partition. Parts of a stream made by hand are streams as well."""
    owner = owner_of(state, QueueName(name))
    if owner is not None and owner.partition_count:
        raise PreconditionFailedError(
            state.thing("stream", name),
            f"is a partition of stream '{owner.name}'",
            "choose another name, or use the partition as it is",
        )


def _check_partition_names(state: VhostTopology, wanted: _Parts) -> None:
    """Check that no other stream has the name of a partition. Parts of a declaration that was cut are its own."""
    assert wanted.exchange is not None
    is_new = wanted.exchange.name not in state.exchanges
    for one in wanted.queues:
        if _exchange(state, one.name) is not None or (is_new and one.name in state.queues):
            raise PreconditionFailedError(
                state.thing("stream", wanted.exchange.name),
                f"needs the name '{one.name}' for a partition, and another stream has it",
                "choose another name, or delete the other stream",
            )


def _check_places(state: VhostTopology, binds: Sequence[Bind]) -> None:
    source = binds[0].binding.source
    if source in state.exchanges:
        for one in binds:
            bindings.check_place(state, one.binding)


def _check_partition_count(state: VhostTopology, command: DeclareStream) -> None:
    """Check that the partition count is unchanged.

    A stream that was assembled by hand has no count and cannot be declared again.
    """
    exchange = _exchange(state, command.name)
    queue = state.queues.get(QueueName(command.name))
    found: int | None = None
    if exchange is not None and (command.partition_count == 1 or exchange.partition_count != command.partition_count):
        found = exchange.partition_count or len(list(state.bindings_from(exchange.name)))
    elif queue is not None and queue.is_stream and command.partition_count > 1:
        found = 1
    if found is not None:
        thing = state.thing("stream", command.name)
        raise PreconditionFailedError.mismatch(thing, "partitions", str(command.partition_count), str(found))


def _exchange(state: VhostTopology, name: str) -> Exchange | None:
    exchange = state.exchanges.get(ExchangeName(name))
    return exchange if exchange is not None and _is_super(exchange) else None


def _is_super(exchange: Exchange) -> bool:
    return exchange.kind is ExchangeKind.SUPER_STREAM
