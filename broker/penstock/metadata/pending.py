"""A copy of a vhost's topology that a batch is decided on, while readers see the committed one.

It holds the changes alone, so that making and dropping it cost little however large the topology is.
"""

from typing import TYPE_CHECKING

from penstock.metadata.effects import (
    Change,
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
from penstock.metadata.overlay import NestedOverlay, Overlay
from penstock.metadata.topology import VhostTopology
from penstock.model.names import ExchangeName, QueueName
from penstock.model.records import Binding, Exchange, Queue, QueueKind

if TYPE_CHECKING:
    from penstock.metadata.policies import Policies
    from penstock.model.limits import Limits


class PendingTopology(VhostTopology):
    """Decide on it, then `commit` it or drop it.

    Invariants: the committed topology does not change while this copy is in use, but by `commit`; `commit` repeats the
    steps that were done here, in the same order. Indexes in order and streams are those of the committed topology.
    """

    def __init__(self, committed: VhostTopology) -> None:
        super().__init__(committed.vhost, committed.next_queue_id)
        self._committed = committed
        self.shard_count = committed.shard_count
        self.put_count = committed.put_count
        self.steps: list[Entry] = []
        """The changes of this copy, in their order, also of things that no file stores."""
        self.exchanges = Overlay(committed.exchanges)
        self.queues = Overlay(committed.queues)
        self.streams = committed.streams
        self.exchange_names = committed.exchange_names
        self.queue_names = committed.queue_names
        self.ordered_bindings = committed.ordered_bindings
        self.binding_count = committed.binding_count
        self.policies = committed.policies
        self.operator_policies = committed.operator_policies
        self.limits = committed.limits
        self.default_queue_type = committed.default_queue_type
        self._by_source = NestedOverlay(committed._by_source)
        self._by_destination = NestedOverlay(committed._by_destination)
        self._route_counts = Overlay(committed._route_counts)
        self._by_owner = NestedOverlay(committed._by_owner)

    def commit(self) -> None:
        """Do to the committed topology what was done to this one. Call it once, and drop the copy."""
        for step in self.steps:
            _repeat(self._committed, step)

    def keep_ids(self) -> None:
        """Never give the ids of this copy again, although it is dropped: a log may be named by one."""
        self._committed.next_queue_id = max(self._committed.next_queue_id, self.next_queue_id)

    def put_exchange(self, exchange: Exchange) -> None:
        self._put_exchange(exchange)
        self.steps.append(PersistExchange(exchange))

    def remove_exchange(self, name: ExchangeName) -> None:
        self._remove_exchange(name)
        self.steps.append(PersistExchangeDeleted(name))

    def put_queue(self, queue: Queue) -> None:
        self._put_queue(queue)
        self.steps.append(PersistQueue(queue))

    def remove_queue(self, name: QueueName) -> None:
        self._remove_queue(name)
        self.steps.append(PersistQueueDeleted(name))

    def put_binding(self, binding: Binding) -> list[Change]:
        self.steps.append(PersistBound(binding))
        return self._put_binding(binding)

    def remove_binding(self, binding: Binding) -> list[Change]:
        self.steps.append(PersistUnbound(binding))
        return self._remove_binding(binding)

    def put_policies(self, policies: "Policies", *, is_operator: bool) -> None:
        super().put_policies(policies, is_operator=is_operator)
        self.steps.append(PersistPolicies(tuple(policies.values()), is_operator=is_operator))

    def put_limits(self, limits: "Limits") -> None:
        super().put_limits(limits)
        self.steps.append(PersistLimits(limits))

    def put_default_queue_type(self, kind: QueueKind) -> None:
        super().put_default_queue_type(kind)
        self.steps.append(PersistDefaultQueueType(kind))


def _repeat(state: VhostTopology, step: Entry) -> None:
    match step:
        case PersistExchange(exchange):
            state.put_exchange(exchange)
        case PersistExchangeDeleted(name):
            state.remove_exchange(name)
        case PersistQueue(queue):
            state.put_queue(queue)
        case PersistQueueDeleted(name):
            state.remove_queue(name)
        case PersistBound(binding):
            state.put_binding(binding)
        case PersistUnbound(binding):
            state.remove_binding(binding)
        case PersistPolicies() | PersistLimits() | PersistDefaultQueueType():
            state.put_settings(step)
