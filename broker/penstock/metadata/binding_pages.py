"""Bindings in pages, narrowed by source and destination."""

import heapq

from penstock.metadata.binding_index import BindingPlace, place_of
from penstock.metadata.topology import VhostTopology
from penstock.model.names import ExchangeName, QueueName
from penstock.model.records import Binding, DestinationKind


def binding_page(
    state: VhostTopology, source: ExchangeName | None, destination: str | None, after: BindingPlace | None, limit: int
) -> list[Binding]:
    """Return the first bindings after a place, which need not exist; both names narrow the list."""
    if destination is None:
        return state.ordered_bindings.page(source, after, limit)
    placed = ((place_of(one), one) for one in _bindings_to(state, destination) if source in (None, one.source))
    found = heapq.nsmallest(limit, (one for one in placed if after is None or one[0] > after))
    return [binding for _, binding in found]


def _bindings_to(state: VhostTopology, destination: str) -> list[Binding]:
    return [
        *state.bindings_to(DestinationKind.QUEUE, QueueName(destination)),
        *state.bindings_to(DestinationKind.EXCHANGE, ExchangeName(destination)),
    ]
