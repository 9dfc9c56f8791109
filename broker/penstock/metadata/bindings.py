"""Rules for bindings: which ends can be bound. Binding twice is binding once."""

from penstock.metadata import exchanges, queues
from penstock.metadata.argument_rules import check_binding_arguments
from penstock.metadata.commands import Bind, Unbind
from penstock.metadata.effects import Decision, Done, PersistBound
from penstock.metadata.removal import remove_binding
from penstock.metadata.topology import VhostTopology
from penstock.model.errors import AccessRefusedError, NotFoundError, PreconditionFailedError, Thing
from penstock.model.names import DEFAULT_EXCHANGE, ConnectionId, ExchangeName, QueueName
from penstock.model.records import Binding, DestinationKind, Exchange, ExchangeKind


def bind(state: VhostTopology, command: Bind) -> Decision:
    wanted = command.binding
    source = _check_ends(state, wanted, command.connection)
    check_binding_arguments(binding_thing(state, wanted), wanted, source.routing_kind)
    if state.binding(wanted) is not None:
        return Decision(Done(0))
    check_place(state, wanted)
    binding = Binding(
        wanted.source, wanted.destination_kind, wanted.destination, wanted.routing_key, dict(wanted.arguments)
    )
    decision = Decision(Done())
    if state.is_binding_persistent(binding):
        decision.entries.append(PersistBound(binding))
    decision.changes += state.put_binding(binding)
    return decision


def unbind(state: VhostTopology, command: Unbind) -> Decision:
    wanted = command.binding
    source = _check_ends(state, wanted, command.connection)
    check_binding_arguments(binding_thing(state, wanted), wanted, source.routing_kind)
    found = state.binding(wanted)
    if found is None:
        way_out = "list the bindings: key and arguments must be those of the bind"
        raise NotFoundError(binding_thing(state, wanted), way_out)
    decision = Decision(Done())
    if found.destination_kind is DestinationKind.QUEUE and source.partition_count:
        queues.check_is_no_partition(state, QueueName(found.destination))
    remove_binding(state, found, decision)
    return decision


def check_place(state: VhostTopology, wanted: Binding) -> None:
    """Check that a partition's number has one stream queue, and that a queue has one number."""
    source = state.exchanges[wanted.source]
    if source.kind is not ExchangeKind.SUPER_STREAM:
        return
    queue = state.queues.get(QueueName(wanted.destination))
    if queue is not None and not queue.is_stream:
        raise PreconditionFailedError(
            state.thing("queue", queue.name), "is not a stream", "declare it with 'x-queue-type' = 'stream'"
        )
    for other in state.bindings_from(wanted.source):
        is_same = (other.routing_key == wanted.routing_key, other.destination == wanted.destination)
        if is_same[0] is not is_same[1]:
            raise PreconditionFailedError.mismatch(
                state.thing("stream", wanted.source),
                f"partition {wanted.routing_key}" if is_same[0] else f"the place of '{wanted.destination}'",
                wanted.destination if is_same[0] else wanted.routing_key,
                other.destination if is_same[0] else other.routing_key,
            )


def binding_thing(state: VhostTopology, binding: Binding) -> Thing:
    text = f"{binding.source} -> {binding.destination_kind} {binding.destination} ({binding.routing_key})"
    return state.thing("binding", text)


def _check_ends(state: VhostTopology, binding: Binding, connection: ConnectionId) -> Exchange:
    """Check both ends; return the source."""
    is_exchange = binding.destination_kind is DestinationKind.EXCHANGE
    if binding.source == DEFAULT_EXCHANGE or (is_exchange and binding.destination == DEFAULT_EXCHANGE):
        raise AccessRefusedError(
            state.thing("exchange", DEFAULT_EXCHANGE),
            "is the default exchange, whose bindings are fixed",
            "bind another exchange; a queue is reached through the default one by its name",
        )
    source = exchanges.get(state, binding.source)
    if is_exchange:
        exchanges.get(state, ExchangeName(binding.destination))
    else:
        queues.get(state, QueueName(binding.destination), connection)
    return source
