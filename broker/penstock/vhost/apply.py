"""Carries the machine's changes to the engine's shard, in order. It decides nothing; anything the shard raises here is
a fault or a bug, because the machine has checked what could be checked.
"""

from collections.abc import Iterable

from penstock.metadata.effects import (
    AddRoute,
    Change,
    DropExchange,
    DropQueue,
    EmptyQueue,
    PutExchange,
    PutQueue,
    RemoveRoute,
)
from penstock.routing import compile_route
from penstock.vhost.ports import Shard


def apply_changes(shard: Shard, changes: Iterable[Change]) -> int:
    """Gives the number of messages that were dropped on the way."""
    dropped_count = 0
    for change in changes:
        match change:
            case PutQueue(queue):
                shard.put_queue(queue.id, queue.name, auto_delete=queue.auto_delete, level=queue.level)
            case DropQueue(id=queue_id):
                dropped_count += shard.delete_queue(queue_id)
            case EmptyQueue(id=queue_id):
                dropped_count += shard.purge_queue(queue_id)
            case PutExchange(exchange):
                shard.put_exchange(exchange.name, exchange.kind.value, exchange.alternate)
            case DropExchange(name):
                shard.delete_exchange(name)
            case AddRoute(route):
                shard.add_route(*compile_route(route))
            case RemoveRoute(route):
                shard.remove_route(*compile_route(route))
    return dropped_count
