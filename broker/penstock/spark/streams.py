"""The driver's view of the streams of a read: their partitions as the broker describes them, and waits for more.

With a pattern, streams are listed again every few seconds, so new ones are found while a query runs. A read that goes
on after a loss looks so again for those of its streams that are not there.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from time import monotonic, sleep
from typing import Protocol

from penstock.spark.described import Partition
from penstock.spark.errors import NotFoundError
from penstock.spark.subscriptions import Subscription

__all__ = ["LISTED_EVERY_SECONDS", "DescribedStreams", "Streams"]

_log = logging.getLogger("penstock")

# A new stream that a pattern matches is found within this time.
LISTED_EVERY_SECONDS = 10.0
# A listed stream may be deleted before it is described, again and again.
LISTINGS_MAX = 3
# The broker describes so many names at once.
NAMES_MAX = 1_000


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
    """The partitions of a subscription, as they were at the last look.

    One that `goes_on` leaves out streams and assigned partitions that are not there.
    """

    def __init__(
        self,
        wire: Streams,
        subscription: Subscription,
        clock: Callable[[], float] = monotonic,
        pause: Callable[[float], None] = sleep,
        *,
        goes_on: bool = False,
    ) -> None:
        self._wire = wire
        self._subscription = subscription
        self._clock = clock
        self._pause = pause
        self._goes_on = goes_on
        self._names = subscription.names
        # Whether streams may come, so that they are looked for again and again.
        self._is_listed = subscription.pattern is not None
        self._listed_at: float | None = None
        # All partitions of the streams, also those that are not read.
        self._all: dict[str, Partition] = {}

    @property
    def last(self) -> dict[str, Partition]:
        """Return the partitions of the last look; look when there was none."""
        return self._selected(needs_all=False) if self._all else self.look()

    def look(self, wait_ms: int = 0, *, needs_all: bool = False) -> dict[str, Partition]:
        """Return the partitions; first wait until one has more than at the last look, but no longer than this.

        With `needs_all` a stream that is not there is an error also where the read goes on without it.
        """
        self._all = self._described(wait_ms, needs_all=needs_all)
        return self._selected(needs_all=needs_all)

    def at_time(self, timestamp_ms: int) -> dict[str, Partition]:
        """Return the partitions with the first offset of a time."""
        return self._wire.describe(self._names, at_timestamp_ms=timestamp_ms) if self._names else {}

    def _selected(self, *, needs_all: bool) -> dict[str, Partition]:
        return self._subscription.selected(self._all, may_miss=self._goes_on and not needs_all)

    def _described(self, wait_ms: int, *, needs_all: bool) -> dict[str, Partition]:
        is_pattern, may_miss = self._subscription.pattern is not None, self._goes_on and not needs_all
        if needs_all and not is_pattern:
            self._names, self._is_listed = self._subscription.names, False
        for attempt in range(LISTINGS_MAX):
            if self._is_listed:
                self._list(is_due=attempt > 0)
                # Wait no longer than until the next listing.
                wait_ms = min(wait_ms, self._until_listing_ms())
            if not self._names:
                self._pause(wait_ms / 1_000)
                return {}
            try:
                return self._asked(wait_ms, may_name_partitions=attempt == 0)
            except NotFoundError:
                # A stream was deleted; with a pattern, since it was listed.
                if attempt + 1 == LISTINGS_MAX or not (is_pattern or may_miss):
                    raise
                self._is_listed = True
        raise AssertionError("the loop returns or raises")

    def _asked(self, wait_ms: int, *, may_name_partitions: bool) -> dict[str, Partition]:
        alone = self._assigned() if wait_ms and may_name_partitions else {}
        if not alone:
            return self._wire.describe(self._names, ends=self._ends(), wait_ms=wait_ms)
        # By their own names, as messages of another partition of the stream would end the wait.
        ends = {name: each.next for name, each in alone.items()}
        found = self._wire.describe(tuple(alone), ends=ends, wait_ms=wait_ms)
        return {
            name: replace(found[name], stream=each.stream, number=each.number)
            for name, each in alone.items()
            if name in found
        }

    def _assigned(self) -> dict[str, Partition]:
        """Return the assigned partitions, if there are some, all are known, and a question may name so many."""
        wanted = self._subscription.assigned
        if wanted is None:
            return {}
        known = self._subscription.selected(self._all, may_miss=True)
        return known if len(known) == sum(map(len, wanted.values())) <= NAMES_MAX else {}

    def _until_listing_ms(self) -> int:
        listed = self._clock() if self._listed_at is None else self._listed_at
        return max(0, round((listed + LISTED_EVERY_SECONDS - self._clock()) * 1_000))

    def _list(self, *, is_due: bool) -> None:
        """List the streams again when it is time to."""
        now = self._clock()
        if is_due or self._listed_at is None or now - self._listed_at >= LISTED_EVERY_SECONDS:
            if self._subscription.pattern is not None:
                self._names = self._subscription.matching(self._wire.list_streams())
            else:
                self._names = self._present()
                self._is_listed = self._names != self._subscription.names
            self._listed_at = now

    def _present(self) -> tuple[str, ...]:
        """Return the streams by name that are there, and warn of any that are gone since the last time."""
        found = []
        for name in self._subscription.names:
            with suppress(NotFoundError):
                self._wire.describe((name,))
                found.append(name)
        for name in self._names:
            if name not in found:
                _log.warning("stream '%s' is not there: the query goes on without it until it is there again", name)
        return tuple(found)

    def _ends(self) -> dict[str, int]:
        """Return the ends of the last look, of streams that are still described."""
        return {name: each.next for name, each in self._all.items() if each.stream in self._names}
