"""Removal of things that depend on a removed one.

The bindings of a queue or an exchange go in both directions, then every auto-delete exchange that lost its last binding
as a source, with its own bindings, and so on. A work list, not recursion: clients make the chains.
"""

from penstock.metadata.effects import (
    Decision,
    DropExchange,
    DropQueue,
    PersistBound,
    PersistExchange,
    PersistExchangeDeleted,
    PersistQueue,
    PersistQueueDeleted,
    PersistUnbound,
)
from penstock.metadata.topology import PREDECLARED_NAMES, VhostTopology
from penstock.model.names import ExchangeName, QueueName
from penstock.model.records import Binding, DestinationKind


def remove_queue(state: VhostTopology, name: QueueName, decision: Decision) -> None:
    queue = state.queues[name]
    if queue.is_persistent:
        decision.entries.append(PersistQueueDeleted(name))
    lost = _remove_bindings(state, list(state.bindings_to(DestinationKind.QUEUE, name)), decision)
    state.remove_queue(name)
    decision.changes.append(DropQueue(queue.id, name))
    _remove_abandoned(state, lost, decision)


def remove_exchange(state: VhostTopology, name: ExchangeName, decision: Decision) -> None:
    _remove_abandoned(state, _remove_one_exchange(state, name, decision), decision)


def remove_binding(state: VhostTopology, binding: Binding, decision: Decision) -> None:
    if state.is_binding_persistent(binding):
        decision.entries.append(PersistUnbound(binding))
    _remove_abandoned(state, _remove_bindings(state, [binding], decision), decision)


def take_back(state: VhostTopology, decision: Decision) -> None:
    """Undo a declaration of durable things, the last decision: its entries name everything that it made."""
    for entry in reversed(decision.entries):
        match entry:
            case PersistBound(binding):
                state.remove_binding(binding)
            case PersistExchange(exchange):
                state.remove_exchange(exchange.name)
            case PersistQueue(queue):
                state.remove_queue(queue.name)
            case _:
                raise AssertionError(entry)


def _remove_abandoned(state: VhostTopology, sources: list[ExchangeName], decision: Decision) -> None:
    """Remove the `sources` that are auto-delete and have no bindings left; each lost one."""
    waiting = sources
    while waiting:
        name = waiting.pop()
        exchange = state.exchanges.get(name)
        if exchange is not None and exchange.auto_delete and not state.is_source(name):
            waiting += _remove_one_exchange(state, name, decision)


def _remove_one_exchange(state: VhostTopology, name: ExchangeName, decision: Decision) -> list[ExchangeName]:
    assert name not in PREDECLARED_NAMES
    if state.exchanges[name].is_persistent:
        decision.entries.append(PersistExchangeDeleted(name))
    _remove_bindings(state, list(state.bindings_from(name)), decision)
    lost = _remove_bindings(state, list(state.bindings_to(DestinationKind.EXCHANGE, name)), decision)
    state.remove_exchange(name)
    decision.changes.append(DropExchange(name))
    return lost


def _remove_bindings(state: VhostTopology, bindings: list[Binding], decision: Decision) -> list[ExchangeName]:
    """Remove bindings; return their sources, each once."""
    for binding in bindings:
        decision.changes += state.remove_binding(binding)
    return list(dict.fromkeys(binding.source for binding in bindings))
