"""Restores a topology from the definitions file, and makes the changes that a new engine needs.

This machine wrote the file: an entry that does not fit is corruption, reported by its place, and nothing is skipped.
"""

from collections.abc import Iterable, Iterator

from penstock.metadata.effects import (
    AddRoute,
    Change,
    DropExchange,
    DropQueue,
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
    PutExchange,
    PutQueue,
    SettingsEntry,
)
from penstock.metadata.policy_rules import change_policies, effective_exchange, effective_queue
from penstock.metadata.replicated import all_entries_of, is_stored
from penstock.metadata.topology import PREDECLARED_NAMES, VhostTopology
from penstock.model.arguments import Frozen
from penstock.model.errors import StorageError, Thing
from penstock.model.names import DEFAULT_EXCHANGE, ExchangeName, QueueId, QueueName, VhostName
from penstock.model.records import Binding, DestinationKind, Exchange, Queue, route_of


def restore(vhost: VhostName, entries: Iterable[Entry], highest_queue_id: int, shard_count: int = 1) -> VhostTopology:
    """Restore a topology; new ids are above the file's highest and `highest_queue_id`, the log's highest."""
    state = VhostTopology(vhost, QueueId(highest_queue_id + 1))
    state.shard_count = shard_count
    for index, entry in enumerate(entries):
        problem = apply_entry(state, entry)
        if problem:
            raise StorageError(
                Thing("definitions file", str(index), vhost),
                f"has an entry number {index} that does not fit those before it: {problem}",
                "restore the file from a copy; nothing was changed",
            )
    return state


def changes_of(state: VhostTopology) -> Iterator[Change]:
    """Yield the whole topology, in an order that the engine accepts."""
    for exchange in state.exchanges.values():
        if exchange.name != DEFAULT_EXCHANGE:
            yield PutExchange(effective_exchange(state, exchange))
    for queue in state.queues.values():
        yield PutQueue(effective_queue(state, queue))
    seen: set[Frozen] = set()
    for binding in state.bindings():
        route = route_of(binding, state.exchanges[binding.source].routing_kind)
        if route.identity not in seen:
            seen.add(route.identity)
            yield AddRoute(route)


def entries_of(state: VhostTopology) -> Iterator[Entry]:
    """Yield the content of a rewritten definitions file."""
    return (entry for entry in all_entries_of(state) if is_stored(state, entry))


def trial_of(state: VhostTopology) -> VhostTopology:
    """Return a copy with all exchanges and queues, and without bindings.

    A trial of declares and binds on it is refused when the state would refuse, and changes nothing.
    """
    trial = VhostTopology(state.vhost, state.next_queue_id)
    trial.shard_count, trial.put_count = state.shard_count, state.put_count
    trial.limits, trial.default_queue_type = state.limits, state.default_queue_type
    trial.policies, trial.operator_policies = state.policies, state.operator_policies
    for exchange in state.exchanges.values():
        if exchange.name not in PREDECLARED_NAMES:
            trial.put_exchange(exchange)
    for queue in state.queues.values():
        trial.put_queue(queue)
    return trial


def apply_entry(state: VhostTopology, entry: Entry, changes: list[Change] | None = None) -> str | None:
    """Apply an entry; return the error if it does not fit, without having changed anything.

    Cascades are entries of their own in the file; here only bindings go with their ends. With `changes`, the changes
    that an engine with the state before needs are appended to it.
    """
    match entry:
        case PersistPolicies() | PersistLimits() | PersistDefaultQueueType():
            problem, follow = None, _apply_settings(state, entry, has_engine=changes is not None)
        case PersistExchange(exchange):
            problem, follow = _apply_exchange(state, exchange)
        case PersistQueue(queue):
            problem, follow = _apply_queue(state, queue)
        case PersistExchangeDeleted(name):
            problem, follow = _apply_exchange_deleted(state, name)
        case PersistQueueDeleted(name):
            problem, follow = _apply_queue_deleted(state, name)
        case PersistBound(binding) | PersistUnbound(binding):
            problem, follow = _apply_binding(state, binding, is_bound=isinstance(entry, PersistBound))
    if changes is not None:
        changes += follow
    return problem


_Applied = tuple[str | None, list[Change]]
"""The error of an entry that does not fit, or the changes that follow for an engine."""


def _apply_settings(state: VhostTopology, entry: SettingsEntry, *, has_engine: bool) -> list[Change]:
    """Apply policies or limits. Without an engine, no name is matched with the policies."""
    if isinstance(entry, PersistPolicies) and has_engine:
        policies = {policy.name: policy for policy in entry.policies}
        return change_policies(state, policies, is_operator=entry.is_operator).changes
    state.put_settings(entry)
    return []


def _apply_exchange(state: VhostTopology, exchange: Exchange) -> _Applied:
    if exchange.name in state.exchanges:
        return f"exchange '{exchange.name}' is declared twice", []
    state.put_exchange(exchange)
    return None, [PutExchange(effective_exchange(state, exchange))]


def _apply_queue(state: VhostTopology, queue: Queue) -> _Applied:
    if queue.name in state.queues:
        return f"queue '{queue.name}' is declared twice", []
    if queue.shard >= state.shard_count:
        return f"queue '{queue.name}' is in shard {queue.shard}, and there are {state.shard_count} shards", []
    state.put_queue(queue)
    return None, [PutQueue(effective_queue(state, queue))]


def _apply_exchange_deleted(state: VhostTopology, name: ExchangeName) -> _Applied:
    if name not in state.exchanges or name in PREDECLARED_NAMES:
        return f"exchange '{name}' is deleted without having been declared", []
    bindings = [*state.bindings_from(name), *state.bindings_to(DestinationKind.EXCHANGE, name)]
    dropped = _drop_bindings(state, bindings)
    state.remove_exchange(name)
    return None, [*dropped, DropExchange(name)]


def _apply_queue_deleted(state: VhostTopology, name: QueueName) -> _Applied:
    queue = state.queues.get(name)
    if queue is None:
        return f"queue '{name}' is deleted without having been declared", []
    dropped = _drop_bindings(state, list(state.bindings_to(DestinationKind.QUEUE, name)))
    state.remove_queue(name)
    return None, [*dropped, DropQueue(queue.id, name)]


def _apply_binding(state: VhostTopology, binding: Binding, *, is_bound: bool) -> _Applied:
    if binding.source not in state.exchanges or not state.has_destination(binding):
        problem = f"'{binding.source}' and {binding.destination_kind} '{binding.destination}' are not both there"
        return problem, []
    found = state.binding(binding)
    if is_bound == (found is not None):
        problem = f"'{binding.source}' to '{binding.destination}' is {'bound twice' if is_bound else 'not bound'}"
        return problem, []
    return None, state.put_binding(binding) if found is None else state.remove_binding(found)


def _drop_bindings(state: VhostTopology, bindings: list[Binding]) -> list[Change]:
    """Remove bindings. An exchange bound to itself is in both lists."""
    dropped = {binding.identity: binding for binding in bindings}.values()
    return [change for binding in dropped for change in state.remove_binding(binding)]
