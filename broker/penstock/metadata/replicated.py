"""The entries of a decision that all brokers of a cluster apply, and which of them their definitions files store.

A file leaves out what ends with its broker: exclusive and transient things, and their bindings. Other brokers must know
them, because messages are routed everywhere. Bindings that go with an end are in neither.
"""

from collections.abc import Iterator, Sequence

from penstock.metadata.effects import (
    Decision,
    Entry,
    PersistBound,
    PersistDefaultQueueType,
    PersistExchange,
    PersistExchangeDeleted,
    PersistLimits,
    PersistPolicies,
    PersistQueue,
    PersistQueueDeleted,
    PersistUnbound,
)
from penstock.metadata.topology import PREDECLARED_NAMES, VhostTopology
from penstock.model.limits import NO_LIMITS
from penstock.model.records import DestinationKind, QueueKind


def replicated(decision: Decision, steps: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the steps of a decision that lead another topology to the same state."""
    unbound = {entry.binding.identity for entry in decision.entries if isinstance(entry, PersistUnbound)}
    exchanges = {step.name for step in steps if isinstance(step, PersistExchangeDeleted)}
    queues = {step.name for step in steps if isinstance(step, PersistQueueDeleted)}

    def goes_with_an_end(step: Entry) -> bool:
        if not isinstance(step, PersistUnbound) or step.binding.identity in unbound:
            return False
        ends = queues if step.binding.destination_kind is DestinationKind.QUEUE else exchanges
        return step.binding.source in exchanges or step.binding.destination in ends

    return tuple(step for step in steps if not goes_with_an_end(step))


def is_stored(state: VhostTopology, entry: Entry) -> bool:
    """Return whether a file stores an entry. The state is the one before it."""
    match entry:
        case PersistExchange(exchange):
            return exchange.is_persistent
        case PersistQueue(queue):
            return queue.is_persistent
        case PersistExchangeDeleted(name):
            return state.exchanges[name].is_persistent
        case PersistQueueDeleted(name):
            return state.queues[name].is_persistent
        case PersistBound(binding) | PersistUnbound(binding):
            return state.is_binding_persistent(binding)
        case PersistPolicies() | PersistLimits() | PersistDefaultQueueType():
            return True


def all_entries_of(state: VhostTopology) -> Iterator[Entry]:
    """Yield the whole topology, also what no file stores."""
    for exchange in state.exchanges.values():
        if exchange.name not in PREDECLARED_NAMES:
            yield PersistExchange(exchange)
    yield from map(PersistQueue, state.queues.values())
    yield from map(PersistBound, state.bindings())
    for policies, is_operator in ((state.policies, False), (state.operator_policies, True)):
        if policies:
            yield PersistPolicies(tuple(policies.values()), is_operator=is_operator)
    if state.limits != NO_LIMITS:
        yield PersistLimits(state.limits)
    if state.default_queue_type is not QueueKind.CLASSIC:
        yield PersistDefaultQueueType(state.default_queue_type)
