"""Reports a query's progress to the broker as a group's stored offsets, so that its lag is a metric there.

The offsets are never read back: the Spark checkpoint says where a query goes on. So a failure is logged and ends
nothing; the next report has newer offsets.
"""

import logging

from penstock.client.errors import ConnectionLostError, DeadlineError, PenstockError
from penstock.client.sync import Connection, connect
from penstock.spark.options import ReadOptions
from penstock.spark.ranges import Offsets

__all__ = ["GroupProgress"]

_log = logging.getLogger("penstock")

# The query waits so long for a report at most, twice.
CALL_SECONDS_MAX = 5.0


class GroupProgress:
    """The stored offsets of a query's group, over one connection that is kept from batch to batch."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._connection: Connection | None = None
        self._stored: Offsets = {}
        # A broker that is away is logged once, though the query asks every second.
        self._is_failing = False

    def store(self, offsets: Offsets) -> None:
        """Store the offsets that changed: the group has processed everything before them."""
        changed = {
            partition: offset
            for partition, offset in offsets.items()
            if offset > 0 and self._stored.get(partition) != offset
        }
        if not changed:
            return
        try:
            self._store_again(changed)
        except PenstockError as error:
            self.close()
            if not self._is_failing:
                _log.warning(
                    "group '%s' of stream '%s' was not stored: %s; the next batch stores it",
                    *(self._options.group, self._options.stream, error),
                )
            self._is_failing = True
            return
        self._stored |= changed
        self._is_failing = False

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _store_again(self, offsets: Offsets) -> None:
        """Store; repeat it once on a new connection, as the broker may have been restarted since the last batch."""
        try:
            self._store(offsets)
        except (ConnectionLostError, DeadlineError):
            self.close()
            self._store(offsets)

    def _store(self, offsets: Offsets) -> None:
        if self._connection is None:
            self._connection = connect(self._options.uri, native=False, timeout=CALL_SECONDS_MAX)
        stream = self._connection.stream(self._options.stream)
        for partition, offset in offsets.items():
            stream.store(self._options.group, offset - 1, partition)
