"""A publisher's numbers across connections: each stream counts from 1, the publisher counts on.

After a broken connection only what has no outcome is sent again, so a stream's numbers stand for runs of the
publisher's.
"""

from bisect import bisect_right

__all__ = ["Numbering"]


class Numbering:
    """Messages sent on one stream, as runs (first on the stream, first of the publisher, count), in order."""

    __slots__ = ("_runs", "sent")

    def __init__(self) -> None:
        self._runs: list[tuple[int, int, int]] = []
        self.sent = 0

    def send(self, number: int) -> None:
        """Record that the publisher's `number` is the next message of the stream."""
        self.sent += 1
        if self._runs:
            start, first, count = self._runs[-1]
            if first + count == number:
                self._runs[-1] = (start, first, count + 1)
                return
        self._runs.append((self.sent, number, 1))

    def translate(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the publisher's numbers of the stream's first to last. Messages that were never sent are left out."""
        found: list[tuple[int, int]] = []
        index = max(bisect_right(self._runs, (first, 2**64, 0)) - 1, 0)
        for start, number, count in self._runs[index:]:
            if start > last:
                break
            low, high = max(first, start), min(last, start + count - 1)
            if low <= high:
                found.append((number + low - start, number + high - start))
        return found
