"""Reports a query's progress to the broker as a group's stored offsets, so that its lag is a metric there.

The offsets are never read back: the Spark checkpoint says where a query goes on. So a failure is logged and ends
nothing; the next report has newer offsets.
"""

import logging

from penstock.client.errors import ConnectionLostError, DeadlineError, PenstockError
from penstock.client.sync import Connection, connect
from penstock.spark.options import ReadOptions
from penstock.spark.positions import Positions

__all__ = ["GroupProgress"]

_log = logging.getLogger("penstock")

# The query waits so long for a report at most, twice.
CALL_SECONDS_MAX = 5.0


class GroupProgress:
    """The stored offsets of a query's group, over one connection that is kept from batch to batch."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._connection: Connection | None = None
        self._stored: dict[str, int] = {}
        # A broker that is away is logged once, though the query asks every second.
        self._is_failing = False

    def store(self, positions: Positions) -> None:
        """Store the offsets that changed: the group has processed everything before them."""
        there = {name: at for name, at in positions.items() if at.next > 0 and not at.is_away}
        changed = {name: at for name, at in there.items() if self._stored.get(name) != at.next}
        if not changed:
            return
        try:
            self._store_again(changed)
        except PenstockError as error:
            self.close()
            if not self._is_failing:
                _log.warning(
                    "group '%s' of stream '%s' was not stored: %s; the next batch stores it",
                    *(self._options.group, self._options.subscription, error),
                )
            self._is_failing = True
            return
        self._stored |= {name: at.next for name, at in changed.items()}
        self._is_failing = False

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _store_again(self, positions: Positions) -> None:
        """Store; repeat it once on a new connection, as the broker may have been restarted since the last batch."""
        try:
            self._store(positions)
        except (ConnectionLostError, DeadlineError):
            self.close()
            self._store(positions)

    def _store(self, positions: Positions) -> None:
        if self._connection is None:
            self._connection = connect(self._options.uri, native=False, timeout=CALL_SECONDS_MAX)
        for name, at in positions.items():
            self._connection.stream(at.stream).store(self._options.group, at.next - 1, name)
