"""RabbitMQ's super streams among definitions, made ours where they say the same: pure, no vhost is touched.

There it is a direct exchange with a mark, and whoever publishes chooses the partition; here the exchange chooses it by
the message's key. So only one that is laid out as its tools do it by default comes in; others are problems.
"""

from collections import defaultdict
from dataclasses import replace
from typing import Final

from penstock.metadata.commands import DeclareExchange
from penstock.model.names import VhostName
from penstock.model.records import X_PARTITIONS, X_QUEUE_TYPE, Binding, DestinationKind, ExchangeKind, QueueKind
from penstock.vhost.definitions_json import Definitions

__all__ = ["take_super_streams"]

MARK: Final = "x-super-stream"
ORDER: Final = "x-stream-partition-order"


def take_super_streams(found: Definitions) -> None:
    bindings: dict[tuple[VhostName, str], list[Binding]] = defaultdict(list)
    for place, binding in found.bindings:
        bindings[place, binding.source].append(binding)
    queues = [(place, queue.name, queue.arguments.get(X_QUEUE_TYPE)) for place, queue in found.queues]
    streams = {(place, name) for place, name, kind in queues if kind == QueueKind.STREAM}
    exchanges: list[tuple[VhostName, DeclareExchange]] = []
    taken: set[tuple[VhostName, str]] = set()
    for place, exchange in found.exchanges:
        if exchange.kind != ExchangeKind.DIRECT or exchange.arguments.get(MARK) is not True:
            exchanges.append((place, exchange))
            continue
        own = bindings[place, exchange.name]
        problem = _problem(exchange, own, {name for where, name in streams if where == place})
        if problem:
            found.problems.append(f"exchanges: exchange '{exchange.name}' is a super stream that {problem}")
            continue
        exchanges.append((place, _ours(exchange, len(own))))
        taken.add((place, exchange.name))
    found.exchanges = exchanges
    found.bindings = [
        (place, _without_order(binding) if (place, binding.source) in taken else binding)
        for place, binding in found.bindings
    ]


def _problem(exchange: DeclareExchange, bindings: list[Binding], streams: set[str]) -> str:
    """Why it cannot be one of ours; empty when it can."""
    if not bindings:
        return "has no partitions; leave it out"
    wanted = {f"{exchange.name}-{number}": str(number) for number in range(len(bindings))}
    is_direct = all(binding.destination_kind is DestinationKind.QUEUE for binding in bindings)
    if not is_direct or {str(binding.destination): str(binding.routing_key) for binding in bindings} != wanted:
        last = len(bindings) - 1
        layout = f"'{exchange.name}-0' to '{exchange.name}-{last}', bound with the keys '0' to '{last}'"
        return f"has other partitions than {layout}; here a message's key chooses the partition, so declare it anew"
    missing = sorted(wanted.keys() - streams)
    if missing:
        return f"has a partition '{missing[0]}' without a stream of that name; add the stream"
    return ""


def _ours(exchange: DeclareExchange, partition_count: int) -> DeclareExchange:
    rest = {key: value for key, value in exchange.arguments.items() if key != MARK}
    arguments = {**rest, X_PARTITIONS: partition_count}
    return replace(exchange, kind=ExchangeKind.SUPER_STREAM.value, arguments=arguments)


def _without_order(binding: Binding) -> Binding:
    """Return the binding without its order, which the key already contains."""
    return replace(binding, arguments={key: value for key, value in binding.arguments.items() if key != ORDER})
