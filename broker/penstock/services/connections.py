"""Counts the open connections by vhost and by user.

A connection counts for a vhost from its first stream there until it ends, and for a user from its first call.
Connections above a limit are refused.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.model.errors import PreconditionFailedError, Thing
from penstock.model.names import ConnectionId, VhostName

ENDED_MAX: Final = 4_096
"""Ended connections that are remembered by number: a call that was sent just before the end may be taken after it."""

_Holder = tuple[str, str]


@dataclass(eq=False, slots=True)
class Connection:
    """A client's connection. Calls under way hold it, and so learn that it has ended.

    Nearly all have one user and one virtual host, and there may be ten thousands of them: tuples take half of the
    memory of sets.
    """

    id: ConnectionId
    peer: str = ""
    has_ended: bool = False
    users: tuple[str, ...] = ()
    holders: tuple[_Holder, ...] = ()

    def is_in(self, vhost: str) -> bool:
        """Return whether the connection counts for a virtual host."""
        return ("vhost", vhost) in self.holders


class Connections:
    """Invariant: every count is the number of connections that have not ended and hold it, each counted once."""

    def __init__(self) -> None:
        self._open: dict[ConnectionId, Connection] = {}
        self._ended: OrderedDict[ConnectionId, None] = OrderedDict()
        self._counts: dict[_Holder, int] = {}
        self._watchers: list[Callable[[ConnectionId], None]] = []

    def watch_ends(self, watcher: Callable[[ConnectionId], None]) -> None:
        """Call the watcher with the number of each connection that ends."""
        self._watchers.append(watcher)

    def open(self, number: ConnectionId, peer: str) -> Connection:
        """Return the connection of that number. A listener uses a number once."""
        known = self._open.get(number)
        if known is not None:
            return known
        connection = Connection(number, peer, has_ended=number in self._ended)
        if not connection.has_ended:
            self._open[number] = connection
        return connection

    def all(self) -> list[Connection]:
        """Return those on which a user has logged in, oldest first."""
        return [self._open[number] for number in sorted(self._open) if self._open[number].users]

    def find(self, number: ConnectionId) -> Connection | None:
        """Return the open connection of a number."""
        return self._open.get(number)

    def end(self, number: ConnectionId) -> None:
        """Count a connection no longer, whatever calls of it are still under way."""
        self._ended[number] = None
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)
        connection = self._open.pop(number, None)
        if connection is None:
            return
        connection.has_ended = True
        for watcher in self._watchers:
            watcher(number)
        for holder in connection.holders:
            self._counts[holder] -= 1
            if not self._counts[holder]:
                del self._counts[holder]

    def vhost_deleted(self, vhost: VhostName) -> None:
        """Count no connection in a virtual host that is gone: one of the same name, made later, begins with none."""
        self._forget(("vhost", vhost))

    def user_deleted(self, user: str) -> None:
        """Count no connection of a user that is gone: one of the same name, made later, begins with none."""
        self._forget(("user", user))
        for connection in self._open.values():
            if user in connection.users:
                connection.users = tuple(other for other in connection.users if other != user)

    def is_new_user(self, connection: Connection, user: str) -> bool:
        """Return whether the user was not seen on this connection before."""
        is_new = user not in connection.users
        if is_new:
            connection.users += (user,)
        return is_new

    def enter(self, connection: Connection, vhost: VhostName, limit: int | None) -> None:
        """Count a connection in a virtual host.

        Raises PreconditionFailedError, because clients retry an exhausted resource by themselves, and this one not. A
        connection that is counted already stays, also above a limit that was set later.
        """
        self._enter(connection, ("vhost", vhost), limit, Thing("connection", str(connection.id), vhost))

    def log_in(self, connection: Connection, user: str, limit: int | None) -> None:
        """Count a connection as the user's, in the same way."""
        self._enter(connection, ("user", user), limit, Thing("connection of user", user))

    def count(self, vhost: VhostName) -> int:
        return self._counts.get(("vhost", vhost), 0)

    def count_of_user(self, user: str) -> int:
        return self._counts.get(("user", user), 0)

    def _forget(self, holder: _Holder) -> None:
        if self._counts.pop(holder, 0):
            for connection in self._open.values():
                if holder in connection.holders:
                    connection.holders = tuple(other for other in connection.holders if other != holder)

    def _enter(self, connection: Connection, holder: _Holder, limit: int | None, thing: Thing) -> None:
        if connection.has_ended or holder in connection.holders:
            return
        count = self._counts.get(holder, 0)
        if limit is not None and count >= limit:
            raise PreconditionFailedError(
                thing,
                f"would exceed the limit of {limit} that may be open",
                "close another one first",
                field="connections_max",
                wanted=str(limit),
            )
        connection.holders += (holder,)
        self._counts[holder] = count + 1
