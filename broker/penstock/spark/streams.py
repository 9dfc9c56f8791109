"""The driver's view of the streams of a read: their partitions as the broker describes them, and waits for more.

With a pattern, streams are listed again every few seconds, so new ones are found while a query runs.
"""

from collections.abc import Callable, Mapping
from time import monotonic, sleep
from typing import Protocol

from penstock.spark.described import Partition
from penstock.spark.errors import NotFoundError
from penstock.spark.subscriptions import Subscription

__all__ = ["LISTED_EVERY_SECONDS", "DescribedStreams", "Streams"]

# A new stream that a pattern matches is found within this time.
LISTED_EVERY_SECONDS = 10.0
# A listed stream may be deleted before it is described, again and again.
LISTINGS_MAX = 3


class Streams(Protocol):
    """The part of `Wire` that says what streams there are."""

    def describe(
        self,
        streams: tuple[str, ...],
        at_timestamp_ms: int | None = None,
        ends: Mapping[str, int] | None = None,
        wait_ms: int = 0,
    ) -> dict[str, Partition]: ...

    def list_streams(self) -> list[str]: ...


class DescribedStreams:
    """The partitions of a subscription, as they were at the last look."""

    def __init__(
        self,
        wire: Streams,
        subscription: Subscription,
        clock: Callable[[], float] = monotonic,
        pause: Callable[[float], None] = sleep,
    ) -> None:
        self._wire = wire
        self._subscription = subscription
        self._clock = clock
        self._pause = pause
        self._names = subscription.names
        self._listed_at: float | None = None
        # All partitions of the streams, also those that are not read.
        self._all: dict[str, Partition] = {}

    @property
    def last(self) -> dict[str, Partition]:
        """Return the partitions of the last look; look when there was none."""
        return self._subscription.selected(self._all) if self._all else self.look()

    def look(self, wait_ms: int = 0) -> dict[str, Partition]:
        """Return the partitions; first wait until one has more than at the last look, but no longer than this."""
        self._all = self._described(wait_ms)
        return self._subscription.selected(self._all)

    def at_time(self, timestamp_ms: int) -> dict[str, Partition]:
        """Return the partitions with the first offset of a time."""
        return self._wire.describe(self._names, at_timestamp_ms=timestamp_ms) if self._names else {}

    def _described(self, wait_ms: int) -> dict[str, Partition]:
        if self._subscription.pattern is None:
            return self._wire.describe(self._names, ends=self._ends(), wait_ms=wait_ms)
        for attempt in range(LISTINGS_MAX):
            self._list(is_due=attempt > 0)
            # Wait no longer than until the next listing.
            listed = self._clock() if self._listed_at is None else self._listed_at
            left_ms = max(0, round((listed + LISTED_EVERY_SECONDS - self._clock()) * 1_000))
            if not self._names:
                self._pause(min(wait_ms, left_ms) / 1_000)
                return {}
            try:
                return self._wire.describe(self._names, ends=self._ends(), wait_ms=min(wait_ms, left_ms))
            except NotFoundError:
                # A stream was deleted since it was listed.
                if attempt + 1 == LISTINGS_MAX:
                    raise
        raise AssertionError("the loop returns or raises")

    def _list(self, *, is_due: bool) -> None:
        """List the streams again when it is time to."""
        now = self._clock()
        if is_due or self._listed_at is None or now - self._listed_at >= LISTED_EVERY_SECONDS:
            self._names = self._subscription.matching(self._wire.list_streams())
            self._listed_at = now

    def _ends(self) -> dict[str, int]:
        """Return the ends of the last look, of streams that are still described."""
        return {name: each.next for name, each in self._all.items() if each.stream in self._names}
