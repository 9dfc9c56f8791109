"""Bindings in pages, in an order that stays while bindings come and go: by source, destination and routing key."""

import heapq
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from penstock.metadata.topology import VhostTopology
from penstock.model.arguments import freeze_arguments
from penstock.model.names import ExchangeName, QueueName
from penstock.model.records import Binding, DestinationKind


class BindingPlace(NamedTuple):
    """The place of a binding in the order. Arguments stand in it as a digest, because they may be long."""

    source: str
    destination: str
    kind: str
    routing_key: str
    arguments: str = ""


def place_of(binding: Binding) -> BindingPlace:
    arguments = ""
    if binding.arguments:
        arguments = blake2b(repr(freeze_arguments(binding.arguments)).encode(errors="surrogatepass")).hexdigest()[:32]
    kind = binding.destination_kind.value
    return BindingPlace(binding.source, binding.destination, kind, binding.routing_key, arguments)


def binding_page(
    state: VhostTopology, source: ExchangeName | None, destination: str | None, after: BindingPlace | None, limit: int
) -> list[Binding]:
    """Return the first bindings after a place, which need not exist; both names narrow the list."""
    if destination is not None:
        found = (one for one in _bindings_to(state, destination) if source in (None, one.source))
        return _first(found, after, limit)
    if source is not None:
        return _first(state.bindings_from(source), after, limit)
    page = _first(state.bindings_from(ExchangeName(after.source)), after, limit) if after is not None else []
    name: str | None = None if after is None else after.source
    while len(page) < limit:
        names = state.exchange_names.page(name, limit)
        for name in names:
            page += _first(state.bindings_from(ExchangeName(name)), None, limit - len(page))
            if len(page) == limit:
                break
        if not names:
            break
    return page


def _first(bindings: Iterable[Binding], after: BindingPlace | None, limit: int) -> list[Binding]:
    placed = ((place_of(binding), binding) for binding in bindings)
    return [
        binding for _, binding in heapq.nsmallest(limit, (one for one in placed if after is None or one[0] > after))
    ]


def _bindings_to(state: VhostTopology, destination: str) -> list[Binding]:
    return [
        *state.bindings_to(DestinationKind.QUEUE, QueueName(destination)),
        *state.bindings_to(DestinationKind.EXCHANGE, ExchangeName(destination)),
    ]
