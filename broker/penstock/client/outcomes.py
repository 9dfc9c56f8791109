"""Which numbers of a publisher have an outcome, and who waits for them.

Outcomes mostly come in order, so a watermark covers nearly all; the ranges ahead of it are kept apart and merged. Pure:
no thread, no loop, no transport.
"""

from asyncio import Future, InvalidStateError
from bisect import bisect_left
from collections.abc import Sequence

from penstock.client.errors import PenstockError, from_status
from penstock.client.transport import Outcome

__all__ = ["FAILURES_MAX", "Outcomes", "PendingFutures"]

FAILURES_MAX = 65_536
DONE_KEPT_MAX = 4_096


class Outcomes:
    """The numbers settled so far.

    Invariants: ranges ahead are disjoint, not adjacent, sorted, and beyond the watermark.
    """

    __slots__ = ("_ahead", "_failures", "settled_through")

    def __init__(self) -> None:
        self.settled_through = 0
        self._ahead: list[tuple[int, int]] = []
        self._failures: dict[int, tuple[int, str]] = {}

    def apply(self, outcome: Outcome) -> None:
        if outcome.code:
            self._remember(outcome.first, outcome.last, outcome.code, outcome.reason)
        self.settle(outcome.first, outcome.last)

    def settle(self, first: int, last: int) -> None:
        if first == self.settled_through + 1 and not self._ahead:
            self.settled_through = last
        elif last > self.settled_through:
            self._merge(max(first, self.settled_through + 1), last)

    def is_settled(self, first: int, last: int) -> bool:
        """Whether every number from first to last has an outcome."""
        if last <= self.settled_through:
            return True
        first = max(first, self.settled_through + 1)
        index = bisect_left(self._ahead, (first + 1, 0)) - 1
        return index >= 0 and self._ahead[index][1] >= last

    def count_unconfirmed(self, last: int) -> int:
        """How many numbers up to `last` have no outcome."""
        return last - self.settled_through - sum(high - low + 1 for low, high in self._ahead)

    def take_failures(self, first: int, last: int) -> list[tuple[int, int, str]]:
        """Remove and return the number, code and reason of each unconfirmed message from first to last, in order."""
        if not self._failures:
            return []
        found = sorted(number for number in self._failures if first <= number <= last)
        return [(number, *self._failures.pop(number)) for number in found]

    def _remember(self, first: int, last: int, code: int, reason: str) -> None:
        for number in range(first, last + 1):
            self._failures[number] = (code, reason)
        # Only a caller that gave up waiting leaves its failures behind: the oldest of those may go.
        while len(self._failures) > FAILURES_MAX:
            del self._failures[next(iter(self._failures))]

    def _merge(self, first: int, last: int) -> None:
        ahead = self._ahead
        low = bisect_left(ahead, (first, 0))
        if low and ahead[low - 1][1] >= first - 1:
            low -= 1
        high = low
        while high < len(ahead) and ahead[high][0] <= last + 1:
            first, last = min(first, ahead[high][0]), max(last, ahead[high][1])
            high += 1
        ahead[low:high] = [(first, last)]
        if ahead[0][0] == self.settled_through + 1:
            self.settled_through = ahead.pop(0)[1]

    def check_invariants(self) -> None:
        before = self.settled_through
        for first, last in self._ahead:
            assert first > before + 1, "ranges touch"
            assert last >= first, "a range is empty"
            before = last


class PendingFutures:
    """A future for each number that has no outcome yet, in the order of the numbers."""

    __slots__ = ("_first", "_futures", "_outcomes")

    def __init__(self) -> None:
        self._futures: list[Future[None]] = []
        self._first = 1
        self._outcomes = Outcomes()

    def extend(self, futures: "list[Future[None]]") -> None:
        """Add the futures of the next numbers.

        Numbers are consecutive, so the index in the list determines the number.
        """
        self._futures += futures

    @property
    def last(self) -> int:
        return self._first + len(self._futures) - 1

    def apply(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            first, last, code = outcome.first, outcome.last, outcome.code
            futures = self._futures[first - self._first : last + 1 - self._first]
            if code:
                _fail(futures, code, outcome.reason)
            else:
                _confirm(futures)
            self._outcomes.settle(first, last)
        self._drop_done()

    def fail_all(self, error: tuple[int, str, bytes]) -> None:
        """Fail all waiting futures, because the publisher has ended for good."""
        for future in self._futures:
            if not future.done():
                future.set_exception(from_status(*error))
        self._futures.clear()

    def __len__(self) -> int:
        """How many numbers have no outcome yet (those ahead of the watermark counted too)."""
        return self.last - self._outcomes.settled_through

    def waiting(self) -> list["Future[None]"]:
        return [future for future in self._futures if not future.done()]

    def _drop_done(self) -> None:
        done = self._outcomes.settled_through + 1 - self._first
        if done == len(self._futures) or done > DONE_KEPT_MAX:
            del self._futures[:done]
            self._first += done


def _confirm(futures: list["Future[None]"]) -> None:
    try:
        for future in futures:
            future.set_result(None)
    except InvalidStateError:
        # A cancelled one stopped the loop: go through them again, with care.
        for future in futures:
            if not future.done():
                future.set_result(None)


def _fail(futures: list["Future[None]"], code: int, reason: str) -> None:
    for future in futures:
        if not future.done():
            error: PenstockError = from_status(code, reason)
            future.set_exception(error)
