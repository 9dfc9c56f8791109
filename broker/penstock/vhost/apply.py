"""Apply the machine's changes to the engine's shard, in order.

It decides nothing. An error of the shard here is a fault or a bug, because the machine has checked all that can be
checked.
"""

from collections.abc import Iterable
from itertools import groupby, islice
from typing import Final

from penstock.metadata.effects import (
    AddRoute,
    Change,
    DropExchange,
    DropQueue,
    EmptyQueue,
    PutExchange,
    PutQueue,
    RemoveRoute,
    UseQueue,
)
from penstock.model.field_table import encode_table
from penstock.model.records import (
    DeadLetters,
    DeadLetterStrategy,
    Deduplication,
    DestinationKind,
    Exchange,
    QueueKind,
    Retention,
    Retries,
    Route,
)
from penstock.native import DeadLetterRoute, NewQueue, NewRoute, RetrySchedule, SeenIds, Shard, StreamRetention

BATCH_MAX: Final = 1_024
"""Queues or routes that one call brings; the shard holds its lock for all of them, some 200 us."""


def apply_changes(shard: Shard, changes: Iterable[Change]) -> int:
    """Apply the changes and return the number of dropped messages.

    Each call to the shard has a fixed cost, so changes of adjacent queues, or routes, are sent together.
    """
    dropped_count = 0
    for kind, alike in groupby(changes, type):
        if kind in (PutQueue, AddRoute):
            while batch := list(islice(alike, BATCH_MAX)):
                _apply_batch(shard, batch)
        else:
            dropped_count += sum(_apply_one(shard, change) for change in alike)
    return dropped_count


def _apply_batch(shard: Shard, batch: list[Change]) -> None:
    """Both lists are never filled at once."""
    queues = [change.queue for change in batch if isinstance(change, PutQueue)]
    routes = [change.route for change in batch if isinstance(change, AddRoute)]
    for queue in queues:
        if queue.is_dedicated:
            shard.dedicate_queue(queue.id)
    if queues:
        shard.put_queues(
            [
                NewQueue(
                    id=queue.id,
                    name=queue.name,
                    auto_delete=queue.auto_delete,
                    level=queue.durability,
                    least_level=queue.least_durability,
                    retention=_retention(queue.retention),
                    message_ttl_ms=queue.message_ttl_ms,
                    messages_max=queue.messages_max,
                    bytes_max=queue.bytes_max,
                    rejects_publish=queue.rejects_publish,
                    dead_letters_refused=queue.dead_letters_refused,
                    expires_ms=queue.expires_ms,
                    max_priority=queue.max_priority,
                    fair_key=queue.fair_key,
                    single_active=queue.single_active,
                    consumer_timeout_ms=queue.consumer_timeout_ms,
                    shard=queue.shard,
                    dead_letters=_dead_letters(queue.dead_letters),
                    delivery_limit=queue.delivery_limit,
                    counts_failures=queue.kind is QueueKind.QUORUM,
                    retries=_retries(queue.retries),
                    deduplication=_seen_ids(queue.deduplication),
                )
                for queue in queues
            ]
        )
    if routes:
        shard.add_routes([compile_route(route) for route in routes])


def _retries(retries: Retries | None) -> RetrySchedule | None:
    if retries is None:
        return None
    steps_ms = list(retries.steps_ms)
    return RetrySchedule(kind=retries.type.value, min_ms=retries.min_ms, max_ms=retries.max_ms, steps_ms=steps_ms)


def _dead_letters(route: DeadLetters | None) -> DeadLetterRoute | None:
    if route is None:
        return None
    at_least_once = route.strategy is DeadLetterStrategy.AT_LEAST_ONCE
    return DeadLetterRoute(exchange=route.exchange, routing_key=route.routing_key, at_least_once=at_least_once)


def _seen_ids(deduplication: Deduplication | None) -> SeenIds | None:
    if deduplication is None:
        return None
    header, size_max, ttl_ms = deduplication
    return SeenIds(header=header, size_max=size_max, ttl_ms=ttl_ms)


def _retention(retention: Retention | None) -> StreamRetention | None:
    if retention is None:
        return None
    return StreamRetention(age_ms_max=retention.age_ms_max, bytes_max=retention.bytes_max)


def _apply_one(shard: Shard, change: Change) -> int:
    """Apply a change and return the number of dropped messages."""
    match change:
        case DropQueue(id=queue_id):
            return shard.delete_queue(queue_id)
        case EmptyQueue(id=queue_id):
            return shard.purge_queue(queue_id)
        case UseQueue(id=queue_id):
            shard.use_queue(queue_id)
        case PutExchange(exchange):
            _put_exchange(shard, exchange)
        case DropExchange(name):
            shard.delete_exchange(name)
        case RemoveRoute(route):
            shard.remove_route(compile_route(route))
    return 0


def _put_exchange(shard: Shard, exchange: Exchange) -> None:
    hash_property = exchange.hash_property
    shard.put_exchange(
        exchange.name,
        exchange.routing_kind.value,
        exchange.alternate,
        algorithm=exchange.algorithm.value,
        hash_header=exchange.hash_header,
        hash_property=None if hash_property is None else hash_property.value,
        delayed=exchange.is_delayed,
        history_length=exchange.history_length,
        deduplication=_seen_ids(exchange.deduplication),
    )


def compile_route(route: Route) -> NewRoute:
    """Return the route as the engine's tables take it.

    Equal routes give equal bytes, so that a route can be removed by naming it again.
    """
    return NewRoute(
        exchange=route.source,
        key=route.key,
        match=None if route.arguments is None else encode_table(route.arguments),
        to_exchange=route.destination_kind is DestinationKind.EXCHANGE,
        destination=route.destination,
    )
