"""How long to wait before connecting again: longer after each failure, never quite the same for two clients."""

from collections.abc import Callable

__all__ = ["Backoff"]


class Backoff:
    """Doubles from `first` to `most` seconds; `draw` returns a number from 0 to 1 that spreads the clients out."""

    def __init__(self, draw: Callable[[], float], first: float = 0.05, most: float = 5.0) -> None:
        self._draw = draw
        self._first = first
        self._most = most
        self._next = first

    def delay(self) -> float:
        """Return the next wait: half of it fixed, half of it random."""
        ceiling = self._next
        self._next = min(self._next * 2, self._most)
        return ceiling * (0.5 + self._draw() / 2)

    def reset(self) -> None:
        """Something worked: the next failure starts from the shortest wait."""
        self._next = self._first
