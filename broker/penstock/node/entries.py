"""Between what `metadata` wants to persist and what `storage` writes: the same six changes under the names of two rooms
that do not know each other."""

from penstock.metadata.effects import (
    Entry,
    PersistBound,
    PersistExchange,
    PersistExchangeDeleted,
    PersistQueue,
    PersistQueueDeleted,
    PersistUnbound,
)
from penstock.model.records import Exchange
from penstock.storage import Bound, Change, Declared, ExchangeDeleted, QueueDeleted, Unbound


def change_of(entry: Entry) -> Change:
    """What the file writes for an entry."""
    match entry:
        case PersistExchange(exchange):
            return Declared(exchange)
        case PersistQueue(queue):
            return Declared(queue)
        case PersistExchangeDeleted(name):
            return ExchangeDeleted(name)
        case PersistQueueDeleted(name):
            return QueueDeleted(name)
        case PersistBound(binding):
            return Bound(binding)
        case PersistUnbound(binding):
            return Unbound(binding)


def entry_of(change: Change) -> Entry:
    """The entry that the file wrote down."""
    match change:
        case Declared(thing):
            return PersistExchange(thing) if isinstance(thing, Exchange) else PersistQueue(thing)
        case ExchangeDeleted(name):
            return PersistExchangeDeleted(name)
        case QueueDeleted(name):
            return PersistQueueDeleted(name)
        case Bound(binding):
            return PersistBound(binding)
        case Unbound(binding):
            return PersistUnbound(binding)
