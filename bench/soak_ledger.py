"""The state of every message of one queue, by number: confirmed, delivered, acknowledged.

One publisher at a time publishes numbers in order, and one consumer at a time consumes them. So a number that was never
seen must be the next one, and a seen one may come again only while it is not acknowledged, and flagged. Memory is
bounded by the unacknowledged or missing messages. It does no I/O.
"""

from dataclasses import dataclass, field

__all__ = ["Ledger", "body", "number_of"]

WORD_BYTES = 8


@dataclass
class Ledger:
    """Ledger of a queue.

    Invariants: every number in `held` is below `next_new`; `acknowledged` counts each number once.
    """

    name: str
    confirmed: int = 0
    acknowledged: int = 0
    redelivered: int = 0
    duplicates: int = 0
    misplaced: int = 0
    corrupt: int = 0
    next_new: int = 0
    held: set[int] = field(default_factory=set)
    missing: set[int] = field(default_factory=set)

    def deliver(self, content: bytes, size: int, redelivered: bool) -> int | None:
        """Enter one delivery; return its number, or None for bytes that were never published."""
        number = number_of(content, size)
        if number is None:
            self.corrupt += 1
        elif number >= self.next_new:
            self.missing.update(range(self.next_new, number))
            self.held.add(number)
            self.next_new = number + 1
        elif number in self.missing:
            self.missing.discard(number)
            self.held.add(number)
            self.misplaced += 1
        elif number in self.held and redelivered:
            self.redelivered += 1
        else:
            self.duplicates += 1
        return number

    def acknowledge(self, number: int) -> None:
        if number in self.held:
            self.held.discard(number)
            self.acknowledged += 1

    @property
    def waiting(self) -> int:
        """Return how many were confirmed and not acknowledged."""
        return self.confirmed - self.acknowledged

    @property
    def lost(self) -> int:
        """Return how many were confirmed and never came, once the queue is empty."""
        return max(0, self.confirmed - self.acknowledged - len(self.held))


def body(number: int, size: int) -> bytes:
    """Return the repeated number, so that every byte is checked."""
    return number.to_bytes(WORD_BYTES, "big") * (size // WORD_BYTES)


def number_of(content: bytes, size: int) -> int | None:
    number = int.from_bytes(content[:WORD_BYTES], "big")
    return number if content == body(number, size) else None
