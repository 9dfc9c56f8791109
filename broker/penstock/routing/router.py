"""The pure router: the queues that a message reaches.

It is the reference for the native tables, so it is written for clarity, not speed: it checks every binding of every
exchange on the way.

Each exchange matches with its own bindings; an exchange is visited once, so cycles end. An exchange that matched
nothing itself passes the message to its alternate exchange, whatever others matched. Only an x-super-stream exchange
uses the message's own key: its hash selects one of the partitions in the order of their numbers.
"""

from collections.abc import Iterable
from typing import Protocol

from penstock.model.arguments import NO_ARGUMENTS, Arguments
from penstock.model.names import DEFAULT_EXCHANGE, ExchangeName, QueueName, RoutingKey
from penstock.model.records import Binding, DestinationKind, Exchange, ExchangeKind
from penstock.routing import headers as headers_rule
from penstock.routing import topic
from penstock.routing.murmur3 import murmur3


class Routable(Protocol):
    """The router's view of a vhost."""

    def exchange(self, name: ExchangeName) -> Exchange | None: ...
    def has_queue(self, name: QueueName) -> bool: ...
    def bindings_from(self, source: ExchangeName) -> Iterable[Binding]: ...


def route(
    vhost: Routable,
    exchange: ExchangeName,
    key: RoutingKey,
    headers: Arguments = NO_ARGUMENTS,
    message_key: bytes | None = None,
) -> list[QueueName]:
    """Return the names of the queues, sorted and unique. A missing exchange leads nowhere."""
    hashed = murmur3(key.encode() if message_key is None else message_key)
    queues: set[QueueName] = set()
    visited = {exchange}
    waiting = [exchange]
    while waiting:
        found_queues, found_exchanges = _step(vhost, waiting.pop(), key, headers, hashed)
        queues |= found_queues
        waiting += found_exchanges - visited
        visited |= found_exchanges
    return sorted(queues)


def _step(
    vhost: Routable, name: ExchangeName, key: RoutingKey, headers: Arguments, hashed: int
) -> tuple[set[QueueName], set[ExchangeName]]:
    if name == DEFAULT_EXCHANGE:
        queue = QueueName(key)
        return ({queue} if vhost.has_queue(queue) else set()), set()
    exchange = vhost.exchange(name)
    if exchange is None:
        return set(), set()
    bindings = list(vhost.bindings_from(name))
    if exchange.kind is ExchangeKind.SUPER_STREAM:
        partitions = sorted(bindings, key=lambda binding: int(binding.routing_key))
        matched = [partitions[hashed % len(partitions)]] if partitions else []
    else:
        matched = [binding for binding in bindings if _matches(exchange.kind, binding, key, headers)]
    if not matched and exchange.alternate is not None:
        return set(), {exchange.alternate}
    queues = {QueueName(one.destination) for one in matched if one.destination_kind is DestinationKind.QUEUE}
    exchanges = {ExchangeName(one.destination) for one in matched if one.destination_kind is DestinationKind.EXCHANGE}
    return queues, exchanges


def _matches(kind: ExchangeKind, binding: Binding, key: RoutingKey, headers: Arguments) -> bool:
    match kind:
        case ExchangeKind.DIRECT:
            return binding.routing_key == key
        case ExchangeKind.FANOUT:
            return True
        case ExchangeKind.TOPIC:
            return topic.matches(binding.routing_key, key)
        case ExchangeKind.HEADERS:
            return headers_rule.matches(binding.arguments, headers)
        case ExchangeKind.SUPER_STREAM:
            raise AssertionError("partitions are chosen among themselves")
