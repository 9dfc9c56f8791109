"""From a route to what the native tables take. Equal routes give equal bytes, so that what was added can be removed
by naming it again.
"""

from typing import NamedTuple

from penstock.model.field_table import encode_table
from penstock.model.records import DestinationKind, Route


class CompiledRoute(NamedTuple):
    """What the shard's `add_routes` and `remove_route` take, in their order. `match` is the AMQP field table of
    a headers binding's arguments, without its length; None for the other kinds of exchange."""

    exchange: str
    key: str
    match: bytes | None
    to_exchange: bool
    destination: str


def compile_route(route: Route) -> CompiledRoute:
    match = None if route.arguments is None else encode_table(route.arguments)
    to_exchange = route.destination_kind is DestinationKind.EXCHANGE
    return CompiledRoute(route.source, route.key, match, to_exchange, route.destination)
