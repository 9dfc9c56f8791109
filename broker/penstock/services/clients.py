"""Connections and consumers. Administrators and monitoring see all of them, other users their own."""

from collections import Counter
from dataclasses import dataclass
from itertools import takewhile

from penstock.model.errors import AccessRefusedError, NotFoundError, Thing
from penstock.model.names import ConnectionId
from penstock.native import OpenConsumer
from penstock.services.connections import Connection, Connections
from penstock.services.listeners import Listeners
from penstock.services.principal import Principal
from penstock.services.status import CARETAKERS
from penstock.services.verbs import changing, reading

ConsumerPlace = tuple[int, str, str, str]
"""Where a consumer is in their order: its connection, vhost, queue and consumer tag."""


@dataclass(frozen=True, slots=True)
class ConnectionStatus:
    """A connection, the users that logged in on it, the vhosts in which it has streams, and its consumers."""

    number: ConnectionId
    peer: str
    users: list[str]
    vhosts: list[str]
    consumer_count: int


class ClientVerbs:
    def __init__(self, connections: Connections, listeners: Listeners) -> None:
        self._connections = connections
        self._listeners = listeners

    @reading
    async def list_connections(
        self, principal: Principal, after: int = 0, limit: int | None = None
    ) -> list[ConnectionStatus]:
        """Return the connections on which a user has logged in: at most `limit` of those with numbers above `after`.

        Of a connection that several users share, as behind a proxy, each sees its own part.
        """
        sees_all = _sees_all(principal)
        seen = [each for each in self._connections.all() if each.id > after]
        page = sorted((each for each in seen if sees_all or principal.name in each.users), key=lambda each: each.id)
        counts = Counter(consumer.connection for consumer in self._consumers_seen(principal))
        return [
            ConnectionStatus(
                each.id, each.peer, *_users_and_vhosts_seen(principal, each), consumer_count=counts[each.id]
            )
            for each in page[:limit]
        ]

    @reading
    async def list_consumers(
        self,
        principal: Principal,
        vhost: str | None = None,
        after: ConsumerPlace | None = None,
        limit: int | None = None,
    ) -> list[OpenConsumer]:
        """Return the consumers, or those in one vhost: at most `limit` of those behind the place `after`.

        They are more than `limit` when the last ones have the same place, so that the next page misses none.
        """
        seen = [each for each in self._consumers_seen(principal) if vhost is None or each.vhost == vhost]
        page = sorted((each for each in seen if after is None or consumer_place(each) > after), key=consumer_place)
        if limit is None or len(page) <= limit:
            return page
        last = consumer_place(page[limit - 1])
        return [*page[:limit], *takewhile(lambda each: consumer_place(each) == last, page[limit:])]

    @changing("CloseConnection", "number")
    async def close_connection(self, principal: Principal, number: int) -> None:
        """Close a connection. Administrators may close any, others one that no other user shares."""
        found, thing = self._connections.find(ConnectionId(number)), Thing("connection", str(number))
        is_own = found is not None and found.users == (principal.name,)
        if not is_own and not principal.is_administrator:
            raise AccessRefusedError(thing, "is not a connection of yours", "let an administrator close it")
        if found is None or not self._listeners.close_connection(found.id):
            raise NotFoundError(thing, "list the connections again")

    def _consumers_seen(self, principal: Principal) -> list[OpenConsumer]:
        sees_all = _sees_all(principal)
        return [each for each in self._listeners.consumers() if sees_all or each.user == principal.name]


def consumer_place(consumer: OpenConsumer) -> ConsumerPlace:
    return consumer.connection, consumer.vhost, consumer.queue, consumer.consumer_tag


def _users_and_vhosts_seen(principal: Principal, connection: Connection) -> tuple[list[str], list[str]]:
    vhosts = sorted(name for kind, name in connection.holders if kind == "vhost")
    if _sees_all(principal) or connection.users == (principal.name,):
        return sorted(connection.users), vhosts
    return [principal.name], [name for name in vhosts if principal.identity.sees_vhost(name)]


def _sees_all(principal: Principal) -> bool:
    return bool(CARETAKERS.intersection(principal.tags))
