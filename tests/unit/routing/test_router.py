"""The router over a handful of exchanges."""

from collections.abc import Sequence

import pytest

from penstock.metadata import VhostTopology, decide
from penstock.metadata.commands import Bind, DeclareExchange, DeclareQueue, DeclareStream
from penstock.model.arguments import Arguments
from penstock.model.names import ConnectionId, ExchangeName, QueueName, RoutingKey, VhostName
from penstock.model.records import Binding, DestinationKind
from penstock.routing import route
from penstock.routing.murmur3 import murmur3

ME = ConnectionId(1)


class World:
    """A topology with a short interface: `queue`s, `exchange`s, and `bind` from one to the other."""

    def __init__(self) -> None:
        self.state = VhostTopology(VhostName("/"))

    def queue(self, *names: str) -> None:
        for name in names:
            decide(self.state, DeclareQueue(QueueName(name), ME))

    def exchange(self, name: str, kind: str, alternate: str | None = None) -> None:
        arguments: Arguments = {} if alternate is None else {"alternate-exchange": alternate}
        decide(self.state, DeclareExchange(ExchangeName(name), kind, arguments=arguments))

    def bind(self, source: str, destination: str, key: str = "", arguments: Arguments | None = None) -> None:
        is_queue = QueueName(destination) in self.state.queues
        kind = DestinationKind.QUEUE if is_queue else DestinationKind.EXCHANGE
        end = QueueName(destination)
        binding = Binding(ExchangeName(source), kind, end, RoutingKey(key), arguments or {})
        decide(self.state, Bind(binding, ME))

    def route(
        self, exchange: str, key: str = "", headers: Arguments | None = None, more_keys: Sequence[str] = ()
    ) -> list[str]:
        more = [RoutingKey(each) for each in more_keys]
        return list(route(self.state, ExchangeName(exchange), RoutingKey(key), headers or {}, more_keys=more))


@pytest.fixture
def world() -> World:
    made = World()
    made.queue("a", "b", "c")
    return made


def test_the_default_exchange_reaches_the_queue_that_the_key_names(world: World) -> None:
    assert world.route("", "a") == ["a"]
    assert world.route("", "nobody") == []


def test_a_direct_exchange_compares_keys(world: World) -> None:
    world.bind("amq.direct", "a", "red")
    world.bind("amq.direct", "b", "red")
    world.bind("amq.direct", "c", "blue")

    assert world.route("amq.direct", "red") == ["a", "b"]


def test_a_fanout_exchange_ignores_the_key(world: World) -> None:
    world.bind("amq.fanout", "a", "red")
    world.bind("amq.fanout", "b")

    assert world.route("amq.fanout", "anything") == ["a", "b"]


def test_a_queue_bound_twice_gets_a_message_once(world: World) -> None:
    world.bind("amq.topic", "a", "web.*")
    world.bind("amq.topic", "a", "#")

    assert world.route("amq.topic", "web.error") == ["a"]


def test_a_headers_exchange_looks_at_headers(world: World) -> None:
    world.bind("amq.headers", "a", arguments={"format": "pdf"})

    assert world.route("amq.headers", headers={"format": "pdf"}) == ["a"]
    assert world.route("amq.headers", headers={"format": "ps"}) == []


def test_exchanges_bound_to_exchanges_match_with_their_own_bindings(world: World) -> None:
    world.exchange("inner", "direct")
    world.bind("amq.topic", "inner", "web.#")
    world.bind("inner", "a", "web.error")

    assert world.route("amq.topic", "web.error") == ["a"]
    assert world.route("amq.topic", "web.info") == []


def test_a_cycle_of_exchanges_ends(world: World) -> None:
    world.exchange("one", "fanout")
    world.exchange("two", "fanout")
    world.bind("one", "two")
    world.bind("two", "one")
    world.bind("one", "one")
    world.bind("two", "a")

    assert world.route("one") == ["a"]


def test_the_alternate_exchange_takes_what_matched_nothing(world: World) -> None:
    world.exchange("main", "direct", alternate="amq.fanout")
    world.bind("main", "a", "known")
    world.bind("amq.fanout", "b")

    assert world.route("main", "known") == ["a"]
    assert world.route("main", "unknown") == ["b"]


def test_a_match_on_an_exchange_that_leads_nowhere_is_still_a_match(world: World) -> None:
    world.exchange("main", "fanout", alternate="amq.fanout")
    world.exchange("dead-end", "direct")
    world.bind("main", "dead-end")
    world.bind("amq.fanout", "b")

    assert world.route("main") == []


def test_an_inner_exchange_uses_its_own_alternate(world: World) -> None:
    world.exchange("inner", "direct", alternate="amq.fanout")
    world.bind("amq.topic", "inner", "#")
    world.bind("amq.topic", "a", "#")
    world.bind("amq.fanout", "b")

    assert world.route("amq.topic", "x") == ["a", "b"]


def test_alternates_in_a_cycle_end(world: World) -> None:
    world.exchange("one", "direct", alternate="two")
    world.exchange("two", "direct", alternate="one")

    assert world.route("one", "x") == []


def test_an_alternate_that_is_not_there_or_the_default_one_is_followed_as_far_as_it_goes(world: World) -> None:
    world.exchange("lost", "direct", alternate="nowhere")
    world.exchange("home", "direct", alternate="")

    assert world.route("lost", "a") == []
    assert world.route("home", "a") == ["a"]


def test_a_stream_places_a_message_by_its_key_or_by_its_routing_key(world: World) -> None:
    decide(world.state, DeclareStream("clicks", 12))
    exchange = ExchangeName("clicks")

    for text in ("", "anna", "ben", "carla", "a.b.c"):
        wanted = [f"clicks-{murmur3(text.encode()) % 12}"]
        assert route(world.state, exchange, RoutingKey(text)) == wanted
        assert route(world.state, exchange, RoutingKey("other"), message_key=text.encode()) == wanted


def test_a_stream_without_partitions_hands_on_to_its_alternate(world: World) -> None:
    world.exchange("rest", "fanout")
    world.bind("rest", "a")
    world.exchange("empty", "x-super-stream", alternate="rest")

    assert world.route("empty", "key") == ["a"]


def test_further_keys_reach_more_queues_and_each_of_them_once(world: World) -> None:
    world.bind("amq.topic", "a", "web.*")
    world.bind("amq.direct", "b", "red")
    world.bind("amq.topic", "amq.direct", "colours.#")

    assert world.route("", "a", more_keys=["b", "nobody", "a"]) == ["a", "b"]
    assert world.route("amq.direct", "blue", more_keys=["red"]) == ["b"]
    assert world.route("amq.topic", "web.error", more_keys=["web.info", "other"]) == ["a"]
    assert world.route("amq.topic", "colours.x", more_keys=["red", "web.info"]) == ["a", "b"]


def test_an_exchange_that_matched_a_further_key_asks_no_alternate(world: World) -> None:
    world.exchange("main", "direct", alternate="amq.fanout")
    world.bind("main", "a", "known")
    world.bind("amq.fanout", "b")

    assert world.route("main", "unknown", more_keys=["known"]) == ["a"]
    assert world.route("main", "unknown", more_keys=["unknown, too"]) == ["b"]
