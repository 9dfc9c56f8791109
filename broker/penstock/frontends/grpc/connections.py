"""Which connections are open in which vhost: a connection is, from its first stream there until it ends. It counts, and
refuses one that would be above the vhost's limit."""

from penstock.model.errors import PreconditionFailedError, Thing
from penstock.model.names import VhostName


class Connections:
    """Invariant: no connection is counted twice in one vhost."""

    def __init__(self) -> None:
        self._vhosts: dict[int, set[VhostName]] = {}
        self._counts: dict[VhostName, int] = {}

    def enter(self, connection: int, vhost: VhostName, limit: int | None) -> None:
        """Raises PreconditionFailedError, which clients do not try again by themselves, as they would when something is
        exhausted. One that is in already stays, also above a limit that came later."""
        entered = self._vhosts.setdefault(connection, set())
        if vhost in entered:
            return
        count = self._counts.get(vhost, 0)
        if limit is not None and count >= limit:
            raise PreconditionFailedError(
                Thing("connection", str(connection), vhost),
                f"would be one more than the {limit} that may be open",
                "close another one first",
                field="connections_max",
            )
        entered.add(vhost)
        self._counts[vhost] = count + 1

    def count(self, vhost: VhostName) -> int:
        return self._counts.get(vhost, 0)

    def disconnected(self, connection: int) -> None:
        for vhost in self._vhosts.pop(connection, ()):
            self._counts[vhost] -= 1
            if not self._counts[vhost]:
                del self._counts[vhost]
