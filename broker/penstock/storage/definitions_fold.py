"""Folds the frames of a definitions file to the exchanges, queues and bindings that are left, in their order.

Deleting a thing deletes its bindings, which the file does not write out. Folding the result again changes nothing.
"""

from collections.abc import Iterable

from penstock.model.arguments import Frozen
from penstock.model.names import ExchangeName, QueueId, QueueName
from penstock.model.records import Binding, DestinationKind, Exchange, Queue
from penstock.storage.amqp_frames import Bound, Change, Declared, ExchangeDeleted, QueueDeleted, Unbound

_End = tuple[str, str]  # kind and name of a binding's source or destination


class Fold:
    """State of a fold, mutable while a file is read; `changes` is the shortest file that means the same."""

    def __init__(self) -> None:
        self.exchanges: dict[ExchangeName, Exchange] = {}
        self.queues: dict[QueueName, Queue] = {}
        self.bindings: dict[Frozen, Binding] = {}
        self.highest_queue_id = 0
        self._by_end: dict[_End, dict[Frozen, None]] = {}

    def apply(self, change: Change) -> None:
        if isinstance(change, Declared):
            self._declare(change.thing)
        elif isinstance(change, Bound):
            self._bind(change.binding)
        elif isinstance(change, Unbound):
            self._unbind(change.binding.identity)
        elif isinstance(change, ExchangeDeleted):
            self.exchanges.pop(change.name, None)
            self._drop_bindings(("exchange", change.name))
        else:
            self.queues.pop(change.name, None)
            self._drop_bindings(("queue", change.name))

    def apply_all(self, changes: Iterable[Change]) -> None:
        for change in changes:
            self.apply(change)

    def changes(self) -> list[Change]:
        """Return exchanges, queues, bindings: each thing comes before the changes that name it.

        The highest id ever assigned stays, too, so that it is not assigned again.
        """
        kept: list[Change] = [Declared(exchange) for exchange in self.exchanges.values()]
        if all(queue.last_id != self.highest_queue_id for queue in self.queues.values()) and self.highest_queue_id:
            gone = QueueName("amq.highest-id")  # a reserved name: no client can have declared it
            kept += (Declared(Queue(QueueId(self.highest_queue_id), gone)), QueueDeleted(gone))
        kept += (Declared(queue) for queue in self.queues.values())
        kept += (Bound(binding) for binding in self.bindings.values())
        return kept

    def _declare(self, thing: Exchange | Queue) -> None:
        if isinstance(thing, Exchange):
            self.exchanges[thing.name] = thing
            return
        self.queues[thing.name] = thing
        self.highest_queue_id = max(self.highest_queue_id, thing.last_id)

    def _bind(self, binding: Binding) -> None:
        identity = binding.identity
        self.bindings.setdefault(identity, binding)
        for end in _ends(binding):
            self._by_end.setdefault(end, {})[identity] = None

    def _unbind(self, identity: Frozen) -> None:
        binding = self.bindings.pop(identity, None)
        if binding is None:
            return
        for end in _ends(binding):
            bound = self._by_end[end]
            bound.pop(identity, None)
            if not bound:
                del self._by_end[end]

    def _drop_bindings(self, end: _End) -> None:
        for identity in list(self._by_end.get(end, ())):
            self._unbind(identity)


def _ends(binding: Binding) -> set[_End]:
    """Return the ends; as a set, because an exchange may be bound to itself."""
    kind = "queue" if binding.destination_kind is DestinationKind.QUEUE else "exchange"
    return {("exchange", binding.source), (kind, binding.destination)}
