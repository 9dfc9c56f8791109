"""Bindings in pages: each of them once, also when others come and go between two pages."""

import pytest

from penstock.metadata.binding_index import place_of
from penstock.metadata.binding_pages import binding_page
from penstock.metadata.topology import VhostTopology
from penstock.model.names import ExchangeName, QueueId, QueueName, RoutingKey, VhostName
from penstock.model.records import Binding, DestinationKind, Queue


def binding(source: str, queue: str, key: str, **arguments: str) -> Binding:
    return Binding(ExchangeName(source), DestinationKind.QUEUE, QueueName(queue), RoutingKey(key), arguments)


def topology(*bindings: Binding) -> VhostTopology:
    state = VhostTopology(VhostName("/"))
    for number, name in enumerate(("a", "b"), 1):
        state.put_queue(Queue(QueueId(number), QueueName(name)))
    for each in bindings:
        state.put_binding(each)
    return state


ALL = [
    binding("amq.direct", "a", "k1"),
    binding("amq.direct", "a", "k2"),
    binding("amq.direct", "b", "k1"),
    binding("amq.headers", "a", "", x="1"),
    binding("amq.headers", "a", "", x="2"),
    binding("amq.topic", "b", "k1"),
]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 7])
@pytest.mark.parametrize(
    ("source", "destination"),
    [(None, None), ("amq.direct", None), (None, "a"), ("amq.headers", "a"), ("none", None)],
)
def test_all_pages_together_hold_every_binding_once_and_in_order(
    limit: int, source: str | None, destination: str | None
) -> None:
    state = topology(*reversed(ALL))
    exchange = None if source is None else ExchangeName(source)
    found: list[Binding] = []
    after = None
    while page := binding_page(state, exchange, destination, after, limit):
        assert len(page) <= limit
        found += page
        after = place_of(page[-1])

    wanted = [one for one in ALL if source in (None, one.source) and destination in (None, one.destination)]
    assert found == sorted(wanted, key=place_of)


def test_a_binding_that_goes_between_two_pages_hides_no_other() -> None:
    state = topology(*ALL)
    first = binding_page(state, None, None, None, 2)
    state.remove_binding(first[-1])
    state.put_binding(binding("amq.direct", "a", "k0"))

    assert binding_page(state, None, None, place_of(first[-1]), 10) == sorted(ALL[2:], key=place_of)
