"""Rules for exchanges: declarations, deletions, and the bindings that go with a deleted one."""

from penstock.metadata.argument_rules import check_delayed_type, check_exchange_arguments, check_exchange_kind
from penstock.metadata.commands import DeclareExchange, DeleteExchange
from penstock.metadata.effects import (
    Decision,
    Done,
    ExchangeDeclared,
    PersistExchange,
    PutExchange,
)
from penstock.metadata.policy_rules import effective_exchange
from penstock.metadata.removal import remove_exchange
from penstock.metadata.topology import PREDECLARED_NAMES, VhostTopology
from penstock.model.arguments import Arguments, difference, show
from penstock.model.errors import (
    AccessRefusedError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionFailedError,
    Thing,
)
from penstock.model.names import DEFAULT_EXCHANGE, ExchangeName, is_reserved
from penstock.model.records import ALTERNATE_KEYS, Exchange, ExchangeKind


def declare(state: VhostTopology, command: DeclareExchange) -> Decision:
    found = check(state, command)
    if found is not None:
        return Decision(ExchangeDeclared(found, is_new=False))
    exchange = _wanted(state, command)
    state.put_exchange(exchange)
    decision = Decision(
        ExchangeDeclared(exchange, is_new=True), changes=[PutExchange(effective_exchange(state, exchange))]
    )
    if exchange.is_persistent:
        decision.entries.append(PersistExchange(exchange))
    return decision


def check(state: VhostTopology, command: DeclareExchange) -> Exchange | None:
    """Return the exchange that exists and is the same, None when it can be made; raise otherwise."""
    thing = state.thing("exchange", command.name)
    found = state.exchanges.get(command.name)
    if command.passive:
        if found is None:
            raise NotFoundError(thing)
        return found
    if command.name == DEFAULT_EXCHANGE:
        raise AccessRefusedError(thing, "is the default exchange and always exists", "declare one with a name")
    wanted = _wanted(state, command)
    if found is not None:
        _check_same(thing, wanted, found)
    elif is_reserved(command.name):
        raise AccessRefusedError(thing, "has a name that starts with 'amq.', which is reserved", "choose another name")
    return found


def delete(state: VhostTopology, command: DeleteExchange) -> Decision:
    thing = state.thing("exchange", command.name)
    if command.name in PREDECLARED_NAMES:
        raise AccessRefusedError(thing, "is predeclared and cannot be deleted", "delete its bindings instead")
    if command.name not in state.exchanges:
        raise NotFoundError(thing)
    if state.exchanges[command.name].partition_count:
        raise PreconditionFailedError(
            thing, "belongs to the stream of that name", "delete the stream", field="partitions"
        )
    if command.if_unused and state.is_source(command.name):
        raise PreconditionFailedError(
            thing, "has bindings", "delete them first, or delete with if_unused=false", field="if_unused"
        )
    decision = Decision(Done())
    remove_exchange(state, command.name, decision)
    return decision


def get(state: VhostTopology, name: ExchangeName) -> Exchange:
    exchange = state.exchanges.get(name)
    if exchange is None:
        raise NotFoundError(state.thing("exchange", name))
    return exchange


def check_publish(state: VhostTopology, name: ExchangeName) -> None:
    """Check that clients can publish to an exchange; raise otherwise."""
    exchange = get(state, name)
    there_count = len(list(state.bindings_from(name))) if exchange.partition_count else 0
    if there_count < exchange.partition_count:
        raise PreconditionFailedError(
            state.thing("stream", name),
            f"has {there_count} of its {exchange.partition_count} partitions",
            "declare it again, which adds the missing ones",
            field="partitions",
        )
    if exchange.internal:
        raise AccessRefusedError(
            state.thing("exchange", name), "is internal", "publish to an exchange that is bound to it"
        )


def _wanted(state: VhostTopology, command: DeclareExchange) -> Exchange:
    thing = state.thing("exchange", command.name)
    kind = check_exchange_kind(thing, command.kind)
    check_exchange_arguments(thing, command.arguments, kind)
    check_delayed_type(thing, command.arguments, kind)
    if kind is ExchangeKind.SUPER_STREAM and (not command.durable or command.auto_delete):
        raise InvalidArgumentError(
            thing,
            "belongs to a stream and must survive a restart",
            "declare it durable and not auto-delete",
            field="durable",
        )
    return Exchange(command.name, kind, command.durable, command.auto_delete, command.internal, dict(command.arguments))


def _check_same(thing: Thing, wanted: Exchange, found: Exchange) -> None:
    for field, one, other in (
        ("type", wanted.kind.value, found.kind.value),
        ("durable", wanted.durable, found.durable),
        ("auto_delete", wanted.auto_delete, found.auto_delete),
        ("internal", wanted.internal, found.internal),
    ):
        if one != other:
            raise PreconditionFailedError.mismatch(thing, field, show(one), show(other))
    differing = difference(_comparable(wanted), _comparable(found))
    if differing is not None:
        key, value, there = differing
        raise PreconditionFailedError.mismatch(thing, f"arguments.{key}", show(value), show(there))


def _comparable(exchange: Exchange) -> Arguments:
    """Return the arguments with one name for the alternate exchange, which has two."""
    arguments = {key: value for key, value in exchange.arguments.items() if key not in ALTERNATE_KEYS}
    if exchange.alternate is not None:
        arguments[ALTERNATE_KEYS[0]] = exchange.alternate
    return arguments
