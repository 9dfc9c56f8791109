"""Rules for queues: declarations, access to exclusive queues, and automatic deletion."""

from dataclasses import replace
from typing import Final

from penstock.metadata.argument_rules import check_queue_arguments
from penstock.metadata.commands import (
    ConnectionClosed,
    DeclareQueue,
    DeleteQueue,
    PurgeQueue,
    QueueUnused,
    SetDefaultQueueType,
)
from penstock.metadata.effects import (
    Decision,
    Done,
    EmptyQueue,
    PersistDefaultQueueType,
    PersistQueue,
    PutQueue,
    QueueDeclared,
    UseQueue,
)
from penstock.metadata.limit_rules import check_dedicated, check_queues
from penstock.metadata.policy_rules import effective_queue
from penstock.metadata.removal import remove_queue
from penstock.metadata.topology import VhostTopology
from penstock.model.arguments import Arguments, difference, show
from penstock.model.errors import (
    AccessRefusedError,
    InvalidArgumentError,
    LimitReachedError,
    LockedError,
    NotFoundError,
    PreconditionFailedError,
    SingleActiveError,
    Thing,
)
from penstock.model.names import (
    NUMBERS_USED_UP,
    QUEUE_ID_MAX,
    SERVER_NAMED_PREFIX,
    SERVER_NAMED_RANDOM_LENGTH,
    ConnectionId,
    QueueName,
    is_reserved,
)
from penstock.model.records import (
    STAGE_PREFIX,
    X_DEDICATED,
    X_QUEUE_TYPE,
    DestinationKind,
    Queue,
    QueueKind,
    kind_of_queue,
)

_TYPES: Final = {
    QueueKind.CLASSIC: "a classic queue",
    QueueKind.QUORUM: "a quorum queue",
    QueueKind.STREAM: "a stream",
}


def declare(state: VhostTopology, command: DeclareQueue) -> Decision:
    command = _with_type(state, command)
    found = check(state, command)
    if found is not None:
        is_use = effective_queue(state, found).expires_ms is not None
        return Decision(QueueDeclared(found, is_new=False), changes=[UseQueue(found.id)] if is_use else [])
    name = command.name or _server_named(command.random)
    assert name not in state.queues
    owner = command.connection if command.exclusive else None
    queue = Queue(state.next_queue_id, name, command.durable, command.auto_delete, dict(command.arguments), owner)
    if queue.last_id > QUEUE_ID_MAX:
        raise LimitReachedError(state.thing("queue", name), *NUMBERS_USED_UP, limit=QUEUE_ID_MAX)
    check_queues(state, state.thing("queue", name))
    if command.arguments.get(X_DEDICATED) is True:
        check_dedicated(state, state.thing("queue", name))
    queue = replace(queue, shard=_shard_of(state, queue))
    state.put_queue(queue)
    decision = Decision(QueueDeclared(queue, is_new=True), changes=[PutQueue(effective_queue(state, queue))])
    if queue.is_persistent:
        decision.entries.append(PersistQueue(queue))
    return decision


def _shard_of(state: VhostTopology, queue: Queue) -> int:
    """Return the shard of a new queue: each in turn, so that the partitions of a stream are in different ones.

    Declarations are counted, not ids: queues with priorities have several ids each.

    The decisions about a stage are in shard 0, with its rows. A dedicated log is in no shard.
    """
    is_in_turn = not queue.is_dedicated and not queue.name.startswith(STAGE_PREFIX)
    return state.put_count % state.shard_count if is_in_turn else 0


def check_default_queue_type(thing: Thing, kind: str) -> QueueKind:
    """Return the type; raise if no queue has it."""
    if kind not in tuple(QueueKind):
        rule = f"cannot have the default queue type '{kind[:64]}'"
        raise InvalidArgumentError(thing, rule, f"use one of {', '.join(QueueKind)}", field="default_queue_type")
    return QueueKind(kind)


def set_default_type(state: VhostTopology, command: SetDefaultQueueType) -> Decision:
    """Set the type of queues that are declared without one from now on."""
    kind = check_default_queue_type(Thing("vhost", state.vhost), command.kind)
    if kind is state.default_queue_type:
        return Decision(Done(0))
    state.put_default_queue_type(kind)
    return Decision(Done(), [PersistDefaultQueueType(kind)])


def _with_type(state: VhostTopology, command: DeclareQueue) -> DeclareQueue:
    """Return a declaration that names no type with the default one of the virtual host.

    A queue that exists keeps its type, so that a program that declares it does not fail once the default has changed.
    One that only a classic queue can be is classic.
    """
    default = state.default_queue_type
    if default is QueueKind.CLASSIC or X_QUEUE_TYPE in command.arguments or not command.takes_default_type:
        return command
    found = state.queues.get(command.name)
    if found is not None:
        kind = found.kind
    elif command.durable and not command.exclusive and not command.auto_delete:
        kind = default
    else:
        return command
    return replace(command, arguments={**command.arguments, X_QUEUE_TYPE: kind.value})


def check(state: VhostTopology, command: DeclareQueue) -> Queue | None:
    """Return the queue that exists and is the same, None when it can be made; raise otherwise."""
    thing = state.thing("queue", command.name)
    if command.passive:
        return get(state, command.name, command.connection)
    check_queue_arguments(thing, command.arguments)
    kind = kind_of_queue(command.arguments)
    if kind is not QueueKind.CLASSIC:
        _check_flags(thing, command, kind)
    if command.arguments.get(X_DEDICATED) is True:
        _check_lasts(thing, command)
    found = state.queues.get(command.name)
    if found is not None:
        _check_owner(thing, found, command.connection)
        _check_same(thing, command, found)
    elif is_reserved(command.name) and not command.may_be_reserved:
        raise AccessRefusedError(
            thing,
            "has a name that starts with 'amq.', which is reserved",
            "choose another name, or an empty one to get a generated name",
        )
    return found


def delete(state: VhostTopology, command: DeleteQueue) -> Decision:
    thing = state.thing("queue", command.name)
    get(state, command.name, command.connection)
    check_is_no_partition(state, command.name)
    if command.if_unused and command.consumer_count:
        raise PreconditionFailedError(
            thing,
            f"has {command.consumer_count} consumers",
            "cancel them first, or delete with if_unused=false",
            field="if_unused",
        )
    if command.if_empty and command.ready_count:
        raise PreconditionFailedError(
            thing,
            f"holds {command.ready_count} ready messages",
            "delete with if_empty=false to drop them",
            field="if_empty",
        )
    decision = Decision(Done())
    remove_queue(state, command.name, decision)
    return decision


def purge(state: VhostTopology, command: PurgeQueue) -> Decision:
    queue = get(state, command.name, command.connection)
    return Decision(Done(), changes=[EmptyQueue(queue.id)])


def connection_closed(state: VhostTopology, command: ConnectionClosed) -> Decision:
    names = state.queues_of(command.connection)
    decision = Decision(Done(len(names)))
    for name in names:
        remove_queue(state, name, decision)
    return decision


def unused(state: VhostTopology, command: QueueUnused) -> Decision:
    queue = state.queues.get(command.name)
    if queue is None or queue.id != command.id or command.consumer_count:
        return Decision(Done(0))
    if not (queue.auto_delete or command.is_expired):
        return Decision(Done(0))
    decision = Decision(Done())
    remove_queue(state, command.name, decision)
    return decision


def get(state: VhostTopology, name: QueueName, connection: ConnectionId) -> Queue:
    """Return the queue if it exists and this connection may use it."""
    thing = state.thing("queue", name)
    queue = state.queues.get(name)
    if queue is None:
        raise NotFoundError(thing)
    _check_owner(thing, queue, connection)
    return queue


def check_is_no_partition(state: VhostTopology, name: QueueName) -> None:
    """Refuse to remove a partition from its stream: without one, keys would move."""
    for binding in state.bindings_to(DestinationKind.QUEUE, name):
        if state.exchanges[binding.source].partition_count:
            raise PreconditionFailedError(
                state.thing("queue", name),
                f"is a partition of the stream '{binding.source}'",
                "delete the stream, which deletes its partitions",
                field="partitions",
            )


def check_consume(state: VhostTopology, queue: Queue) -> None:
    """Check that messages can be consumed from the queue; raise otherwise."""
    if queue.is_stream:
        raise InvalidArgumentError(
            state.thing("queue", queue.name),
            "is a stream: reading does not remove its messages",
            "read it: StreamService.Read, `connection.stream(name).read()` or `penstock stream read`",
            field="queue",
        )


def check_get(state: VhostTopology, queue: Queue) -> None:
    """Check that messages can be got from the queue one by one; raise otherwise."""
    check_consume(state, queue)
    if queue.kind is QueueKind.QUORUM and queue.single_active:
        raise SingleActiveError(state.thing("queue", queue.name))


def _check_flags(thing: Thing, command: DeclareQueue, kind: QueueKind) -> None:
    """Check the flags of a queue of a type that is always durable and permanent."""
    for field, given, wanted in (
        ("durable", command.durable, True),
        ("exclusive", command.exclusive, False),
        ("auto_delete", command.auto_delete, False),
    ):
        if given is not wanted:
            raise InvalidArgumentError(
                thing,
                f"is {_TYPES[kind]} and is declared with {field}={show(given)}",
                f"declare it with {field}={show(wanted)}",
                field=field,
            )


def _check_lasts(thing: Thing, command: DeclareQueue) -> None:
    """Check that a queue with its own log is durable and permanent."""
    if not command.durable or command.exclusive:
        raise InvalidArgumentError(
            thing,
            f"has the argument '{X_DEDICATED}' and is not durable, or exclusive",
            f"declare it durable and not exclusive, or without '{X_DEDICATED}'",
            field=X_DEDICATED,
        )


def _check_owner(thing: Thing, queue: Queue, connection: ConnectionId) -> None:
    if queue.owner is not None and queue.owner != connection:
        raise LockedError(thing)


def _check_same(thing: Thing, command: DeclareQueue, found: Queue) -> None:
    kind = kind_of_queue(command.arguments)
    if kind is not kind_of_queue(found.arguments):
        rule = f"is {_TYPES[found.kind]}, not {_TYPES[kind]}"
        raise PreconditionFailedError(
            thing,
            rule,
            "choose another name, or delete it first",
            field=f"arguments.{X_QUEUE_TYPE}",
            wanted=kind.value,
            found=found.kind.value,
        )
    for field, wanted, there in (
        # First, as in RabbitMQ: AMQP has another reply code for it than for the others.
        ("exclusive", command.exclusive, found.exclusive),
        ("durable", command.durable, found.durable),
        ("auto_delete", command.auto_delete, found.auto_delete),
    ):
        if wanted != there:
            raise PreconditionFailedError.mismatch(thing, field, show(wanted), show(there))
    differing = difference(_comparable(command.arguments), _comparable(found.arguments))
    if differing is not None:
        key, value, there_value = differing
        raise PreconditionFailedError.mismatch(thing, f"arguments.{key}", show(value), show(there_value))


def _comparable(arguments: Arguments) -> Arguments:
    """Return the arguments without a type that the queue has anyway."""
    return {**arguments, X_QUEUE_TYPE: kind_of_queue(arguments).value}


def _server_named(random: str) -> QueueName:
    assert len(random) == SERVER_NAMED_RANDOM_LENGTH
    return QueueName(SERVER_NAMED_PREFIX + random)
