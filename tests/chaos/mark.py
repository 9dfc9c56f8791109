"""A moment, and the time until clients notice that a broker serves again."""

from dataclasses import dataclass, field
from threading import Event

__all__ = ["Mark"]


@dataclass
class Mark:
    """A moment, and the time until something that came after it: a publisher's confirm, or a consumer's delivery."""

    at: float
    seconds: float | None = None
    reached: Event = field(default_factory=Event)

    def reach(self, now: float) -> None:
        self.seconds = now - self.at
        self.reached.set()
