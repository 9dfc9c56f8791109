"""The pure router: the queues that a message reaches.

It is the reference for the native tables, so it is written for clarity, not speed: it checks every binding of every
exchange on the way.

Each exchange matches with its own bindings; an exchange is visited once, so cycles end. An exchange that matched
nothing itself passes the message to its alternate exchange, whatever others matched. A message may have further
routing keys: direct and topic exchanges match each of them, and the default exchange leads to the queue of each. Only
an x-super-stream exchange uses the message's own key: its hash selects one of the partitions in the order of their
numbers. Of an exchange that chooses one binding, `hashing`
chooses it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.model.arguments import NO_ARGUMENTS, Arguments
from penstock.model.names import DEFAULT_EXCHANGE, ExchangeName, QueueName, RoutingKey
from penstock.model.records import Binding, DestinationKind, Exchange, ExchangeKind
from penstock.routing import hashing, topic
from penstock.routing import headers as headers_rule
from penstock.routing.murmur3 import murmur3


class Routable(Protocol):
    """The router's view of a vhost."""

    def exchange(self, name: ExchangeName) -> Exchange | None: ...
    def has_queue(self, name: QueueName) -> bool: ...
    def bindings_from(self, source: ExchangeName) -> Iterable[Binding]: ...


@dataclass(frozen=True, slots=True)
class Message:
    """The parts of a message that routing reads."""

    keys: Sequence[RoutingKey]
    """Its routing key, and the further ones."""
    headers: Arguments
    own_key: bytes


def route(
    vhost: Routable,
    exchange: ExchangeName,
    key: RoutingKey,
    headers: Arguments = NO_ARGUMENTS,
    message_key: bytes | None = None,
    more_keys: Sequence[RoutingKey] = (),
) -> list[QueueName]:
    """Return the names of the queues, sorted and unique. A missing exchange leads nowhere."""
    message = Message((key, *more_keys), headers, key.encode() if message_key is None else message_key)
    queues: set[QueueName] = set()
    visited = {exchange}
    waiting = [exchange]
    while waiting:
        found_queues, found_exchanges = _step(vhost, waiting.pop(), message)
        queues |= found_queues
        waiting += found_exchanges - visited
        visited |= found_exchanges
    return sorted(queues)


def _step(vhost: Routable, name: ExchangeName, message: Message) -> tuple[set[QueueName], set[ExchangeName]]:
    if name == DEFAULT_EXCHANGE:
        return {QueueName(key) for key in message.keys if vhost.has_queue(QueueName(key))}, set()
    exchange = vhost.exchange(name)
    if exchange is None:
        return set(), set()
    bindings = list(vhost.bindings_from(name))
    if exchange.routing_kind is ExchangeKind.SUPER_STREAM:
        partitions = sorted(bindings, key=lambda binding: int(binding.routing_key))
        matched = [partitions[murmur3(message.own_key) % len(partitions)]] if partitions else []
    elif exchange.routing_kind in hashing.KINDS:
        matched = hashing.choose(exchange, bindings, hashing.content(exchange, message.keys[0], message.headers))
    else:
        matched = [binding for binding in bindings if _matches(exchange.routing_kind, binding, message)]
    if not matched and exchange.alternate is not None:
        return set(), {exchange.alternate}
    queues = {QueueName(one.destination) for one in matched if one.destination_kind is DestinationKind.QUEUE}
    exchanges = {ExchangeName(one.destination) for one in matched if one.destination_kind is DestinationKind.EXCHANGE}
    return queues, exchanges


def _matches(kind: ExchangeKind, binding: Binding, message: Message) -> bool:
    match kind:
        case ExchangeKind.DIRECT:
            return binding.routing_key in message.keys
        case ExchangeKind.FANOUT | ExchangeKind.RECENT_HISTORY:
            return True
        case ExchangeKind.TOPIC:
            return any(topic.matches(binding.routing_key, key) for key in message.keys)
        case ExchangeKind.HEADERS:
            return headers_rule.matches(binding.arguments, message.headers)
        case _:
            raise AssertionError("bindings are chosen among themselves")
