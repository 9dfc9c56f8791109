"""Which connections are open, by vhost and by user: of a vhost from a connection's first stream there until it ends, of
a user from the first call. It counts, and refuses one that would be above a limit."""

from penstock.model.errors import PreconditionFailedError, Thing
from penstock.model.names import VhostName

_Holder = tuple[str, str]


class Connections:
    """Invariant: no connection is counted twice for one holder."""

    def __init__(self) -> None:
        self._holders: dict[int, set[_Holder]] = {}
        self._counts: dict[_Holder, int] = {}
        self._users: dict[int, set[str]] = {}

    def is_new_user(self, connection: int, user: str) -> bool:
        """Whether the user was not seen on this connection before."""
        users = self._users.setdefault(connection, set())
        is_new = user not in users
        users.add(user)
        return is_new

    def enter(self, connection: int, vhost: VhostName, limit: int | None) -> None:
        """Raises PreconditionFailedError, which clients do not try again by themselves, as they would when something is
        exhausted. One that is in already stays, also above a limit that came later."""
        self._enter(connection, ("vhost", vhost), limit, Thing("connection", str(connection), vhost))

    def log_in(self, connection: int, user: str, limit: int | None) -> None:
        """The same for a user's connections."""
        self._enter(connection, ("user", user), limit, Thing("connection of user", user))

    def count(self, vhost: VhostName) -> int:
        return self._counts.get(("vhost", vhost), 0)

    def count_of_user(self, user: str) -> int:
        return self._counts.get(("user", user), 0)

    def disconnected(self, connection: int) -> None:
        self._users.pop(connection, None)
        for holder in self._holders.pop(connection, ()):
            self._counts[holder] -= 1
            if not self._counts[holder]:
                del self._counts[holder]

    def _enter(self, connection: int, holder: _Holder, limit: int | None, thing: Thing) -> None:
        entered = self._holders.setdefault(connection, set())
        if holder in entered:
            return
        count = self._counts.get(holder, 0)
        if limit is not None and count >= limit:
            raise PreconditionFailedError(
                thing,
                f"would be one more than the {limit} that may be open",
                "close another one first",
                field="connections_max",
            )
        entered.add(holder)
        self._counts[holder] = count + 1
