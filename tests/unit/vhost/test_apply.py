"""Routes as the engine's tables take them."""

from penstock.model.arguments import Arguments
from penstock.model.field_table import encode_table
from penstock.model.names import ExchangeName, QueueName, RoutingKey
from penstock.model.records import Binding, DestinationKind, ExchangeKind, route_of
from penstock.native import NewRoute
from penstock.vhost.apply import compile_route


def binding(key: str, arguments: Arguments, kind: DestinationKind = DestinationKind.QUEUE) -> Binding:
    return Binding(ExchangeName("x"), kind, QueueName("q"), RoutingKey(key), arguments)


def test_direct_and_topic_keep_the_key_and_drop_the_arguments() -> None:
    for kind in (ExchangeKind.DIRECT, ExchangeKind.TOPIC):
        route = route_of(binding("a.b", {"note": 1}), kind)
        assert compile_route(route) == NewRoute(exchange="x", key="a.b", destination="q")


def test_fanout_drops_both() -> None:
    route = route_of(binding("a.b", {"note": 1}), ExchangeKind.FANOUT)
    assert compile_route(route) == NewRoute(exchange="x", key="", destination="q")


def test_headers_drop_the_key_and_keep_the_arguments_as_a_field_table() -> None:
    arguments: Arguments = {"x-match": "any", "format": "pdf"}
    route = route_of(binding("ignored", arguments), ExchangeKind.HEADERS)
    assert compile_route(route) == NewRoute(exchange="x", key="", match=encode_table(arguments), destination="q")


def test_headers_without_arguments_are_an_empty_table_not_none() -> None:
    assert compile_route(route_of(binding("", {}), ExchangeKind.HEADERS)).match == b""


def test_a_destination_can_be_an_exchange() -> None:
    assert compile_route(route_of(binding("", {}, DestinationKind.EXCHANGE), ExchangeKind.DIRECT)).to_exchange
