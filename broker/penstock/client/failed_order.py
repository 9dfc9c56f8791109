"""Sequences that a named publisher must not pass: they failed, or may have failed, and were not sent again.

The broker stores nothing of a name below the highest sequence that it has. A message sent past one that failed would
make the broker take the failed one, when it comes again, for one that it has: confirmed, and lost. Pure.
"""

from bisect import bisect_left

from penstock.client.errors import FAILED_PRECONDITION, from_status

__all__ = ["FailedOrder", "UnknownOutcomes"]


class FailedOrder:
    """The failed sequences of a publisher on an event loop, sorted.

    They are sent again in their order, each before any higher one.
    """

    __slots__ = ("_failed",)

    def __init__(self) -> None:
        self._failed: list[int] = []

    @property
    def first(self) -> int:
        """The lowest of them, or 0."""
        return self._failed[0] if self._failed else 0

    def fail(self, sequence: int) -> None:
        place = bisect_left(self._failed, sequence)
        if self._failed[place : place + 1] != [sequence]:
            self._failed.insert(place, sequence)

    def refusal(self, sequence: int) -> tuple[int, str, bytes] | None:
        """None where `sequence` may be sent; else why not."""
        if not self._failed or sequence <= self.first:
            return None
        text = (
            f"not sent: sequence {self.first} failed before it; send it again (sequence={self.first}), then the "
            "later failed messages, in order, or close the publisher and open it again"
        )
        return FAILED_PRECONDITION, text, b""

    def sent(self, sequence: int) -> None:
        """Remove a sequence that is sent again."""
        if sequence == self.first:
            del self._failed[:1]


class UnknownOutcomes:
    """Sequences that may be stored or not, as one range.

    At the start, the ones in only some of the logs: behind `complete`, up to `highest`.
    """

    __slots__ = ("_differing", "_first", "_last")

    def __init__(self, complete: int, highest: int) -> None:
        self._first, self._last = complete + 1, highest
        self._differing = highest

    def add(self, first: int, last: int) -> None:
        if self._first <= self._last:
            first, last = min(first, self._first), max(last, self._last)
        self._first, self._last = first, last

    def confirm(self, first: int, last: int) -> None:
        """Remove sequences that were sent again and are stored."""
        if first <= self._first or first > self._last == self._differing:
            # Above all that any log has, the caller left out what only some of them have.
            self._first = max(self._first, last + 1)

    def check(self) -> None:
        """Raise an error if the next sequence is not known."""
        if self._first > self._last:
            return
        text = f"whether sequences {self._first} to {self._last} are stored is not known; send them again "
        if self._last == self._differing:
            text += f"(sequence={self._first}), or go on with new messages (sequence={self._last + 1})"
        else:
            text += f"(sequence={self._first}), or close the publisher and open it again"
        raise from_status(FAILED_PRECONDITION, text)
