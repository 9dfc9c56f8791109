"""What is to be looked at, and when: each key waits once, however often it is added, and is never in two hands.
Failures come back later each time. It has no clock: the time is handed in."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

BACKOFF_SECONDS_MIN: Final = 0.25
BACKOFF_SECONDS_MAX: Final = 120.0


class Key(NamedTuple):
    """An object of ours."""

    kind: str
    namespace: str
    name: str


@dataclass(slots=True)
class Backlog:
    """Invariants: a key that is taken is not given out again before it is finished; a key that was added while it was
    taken is due again afterwards; every key added is given out once its time has come."""

    jitter: Callable[[], float] = field(default=lambda: 1.0)
    _due: dict[Key, float] = field(default_factory=dict)
    _heap: list[tuple[float, Key]] = field(default_factory=list)
    _taken: set[Key] = field(default_factory=set)
    _failures: dict[Key, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._due)

    def add(self, key: Key, at: float) -> None:
        """The earlier time counts."""
        if key in self._due and self._due[key] <= at:
            return
        self._due[key] = at
        heapq.heappush(self._heap, (at, key))

    def take(self, now: float) -> Key | None:
        """A key whose time has come. The caller must give it back by `finished` or `failed`."""
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
        """When there is something to take at the earliest, but for what is taken."""
        return self._heap[0][0] if self._heap else None

    def attempts(self, key: Key) -> int:
        """How often in a row it failed."""
        return self._failures.get(key, 0)

    def finished(self, key: Key, now: float, again_after: float | None) -> None:
        self._taken.discard(key)
        self._failures.pop(key, None)
        if again_after is not None:
            self.add(key, now + again_after)

    def failed(self, key: Key, now: float) -> float:
        """Comes back after twice the time as before; says after how long."""
        self._taken.discard(key)
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        delay: float = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN * 2 ** min(count, 16)) * self.jitter()
        self.add(key, now + delay)
        return delay

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._due.pop(key, None)
        self._failures.pop(key, None)

    def check_invariants(self) -> None:
        waiting = {(at, key) for at, key in self._heap}
        assert all((at, key) in waiting for key, at in self._due.items())
        assert all(at >= 0 for at in self._due.values())
