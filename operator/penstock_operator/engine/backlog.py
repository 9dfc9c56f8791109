"""The queue of objects to reconcile, with times.

Each key waits once, however often it is added, and is never with two workers. Failures come back later each time. The
time is passed in.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

BACKOFF_SECONDS_MIN: Final = 0.25
BACKOFF_SECONDS_MAX: Final = 120.0


class Key(NamedTuple):
    """Key of one of our objects."""

    kind: str
    namespace: str
    name: str


@dataclass(slots=True)
class Backlog:
    """A queue of keys.

    Invariants: a taken key is not handed out again before it is finished; a key that was added while it was taken is
    due again afterwards; every key added is handed out once its time has come.
    """

    jitter: Callable[[], float] = field(default=lambda: 1.0)
    _due: dict[Key, float] = field(default_factory=dict)
    _heap: list[tuple[float, Key]] = field(default_factory=list)
    _taken: set[Key] = field(default_factory=set)
    _failures: dict[Key, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._due)

    def add(self, key: Key, at: float) -> None:
        """Add a key; the earlier time counts."""
        if key in self._due and self._due[key] <= at:
            return
        self._due[key] = at
        heapq.heappush(self._heap, (at, key))

    def take(self, now: float) -> Key | None:
        """Return a key whose time has come. The caller must return it by `finished` or `failed`."""
        held: list[tuple[float, Key]] = []
        found: Key | None = None
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._due.get(key) != at:
                continue  # it was added for an earlier time since
            if key in self._taken:
                held.append((at, key))
                continue
            found = key
            break
        for entry in held:
            heapq.heappush(self._heap, entry)
        if found is not None:
            del self._due[found]
            self._taken.add(found)
        return found

    def next_at(self) -> float | None:
        """Return the earliest time of a key that is not taken."""
        return self._heap[0][0] if self._heap else None

    def attempts(self, key: Key) -> int:
        """Return how often in a row a key failed."""
        return self._failures.get(key, 0)

    def finished(self, key: Key, now: float, again_after: float | None) -> None:
        self._taken.discard(key)
        self._failures.pop(key, None)
        if again_after is not None:
            self.add(key, now + again_after)

    def failed(self, key: Key, now: float) -> float:
        """Requeue a key with twice the previous delay; return the delay."""
        self._taken.discard(key)
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        delay: float = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN * 2 ** min(count, 16)) * self.jitter()
        self.add(key, now + delay)
        return delay

    def check_invariants(self) -> None:
        waiting = {(at, key) for at, key in self._heap}
        assert all((at, key) in waiting for key, at in self._due.items())
        assert all(at >= 0 for at in self._due.values())
