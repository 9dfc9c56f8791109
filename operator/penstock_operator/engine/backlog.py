"""The queue of objects to reconcile, with times.

Each key waits once, however often it is added, and is never with two workers. Failures come back later each time. Keys
form groups, by what may hold them up: of those that are due, the group with the fewest workers is served first, so that
a broker that hangs, with thousands of objects, takes no more workers than others leave. The time is passed in.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Hashable
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
    group_of: Callable[[Key], Hashable] = field(default=lambda _: "")
    _due: dict[Key, float] = field(default_factory=dict)
    # Per group; no heap is empty.
    _heaps: dict[Hashable, list[tuple[float, Key]]] = field(default_factory=dict)
    # The taken keys with their groups, and how many of each group are taken.
    _taken: dict[Key, Hashable] = field(default_factory=dict)
    _load: Counter[Hashable] = field(default_factory=Counter)
    _failures: dict[Key, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._due)

    def add(self, key: Key, at: float) -> None:
        """Add a key; the earlier time counts."""
        if key in self._due and self._due[key] <= at:
            return
        self._due[key] = at
        self._push(self.group_of(key), at, key)

    def take(self, now: float) -> Key | None:
        """Return a key whose time has come. The caller must return it by `finished` or `failed`."""
        due = [(self._load[group], heap[0][0], group) for group, heap in self._heaps.items() if heap[0][0] <= now]
        for _, _, group in sorted(due, key=lambda each: each[:2]):
            found = self._take_of(group, now)
            if found is not None:
                del self._due[found]
                self._taken[found] = group
                self._load[group] += 1
                return found
        return None

    def _take_of(self, group: Hashable, now: float) -> Key | None:
        heap, held = self._heaps[group], []
        found: Key | None = None
        while heap and heap[0][0] <= now and found is None:
            at, key = heapq.heappop(heap)
            if self._due.get(key) != at:
                continue  # it was added for an earlier time since
            if key in self._taken:
                held.append((at, key))
            else:
                found = key
        if not heap:
            del self._heaps[group]
        for at, key in held:
            self._push(group, at, key)
        return found

    def _push(self, group: Hashable, at: float, key: Key) -> None:
        heapq.heappush(self._heaps.setdefault(group, []), (at, key))

    def _release(self, key: Key) -> None:
        if key in self._taken:
            group = self._taken.pop(key)
            self._load[group] -= 1
            if self._load[group] == 0:
                del self._load[group]

    def next_at(self) -> float | None:
        """Return the earliest time of a key that waits."""
        return min((heap[0][0] for heap in self._heaps.values()), default=None)

    def overdue(self, now: float) -> float:
        """Return for how many seconds the key that was due first has waited, taken or not; 0 when none is due."""
        return max(0.0, now - min(self._due.values(), default=now))

    def attempts(self, key: Key) -> int:
        """Return how often in a row a key failed."""
        return self._failures.get(key, 0)

    def finished(self, key: Key, now: float, again_after: float | None) -> None:
        self._release(key)
        self._failures.pop(key, None)
        if again_after is not None:
            self.add(key, now + again_after)

    def failed(self, key: Key, now: float) -> float:
        """Requeue a key with twice the previous delay; return the delay."""
        self._release(key)
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        delay: float = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN * 2 ** min(count, 16)) * self.jitter()
        self.add(key, now + delay)
        return delay

    def check_invariants(self) -> None:
        waiting = {entry for heap in self._heaps.values() for entry in heap}
        assert all((at, key) in waiting for key, at in self._due.items())
        assert all(at >= 0 for at in self._due.values())
        assert all(self._heaps.values())
        assert self._load == Counter(self._taken.values())
