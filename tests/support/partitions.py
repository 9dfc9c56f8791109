"""Partitions as a broker describes them, made from the offsets of their messages; and strategies for any of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from penstock.spark.described import Partition, Runs

__all__ = ["RAISE", "Messages", "joined", "some_messages"]

RAISE = 2**32


@dataclass(frozen=True)
class Messages:
    """The offsets of a partition's messages, ascending, with the number of those that are gone from before them."""

    offsets: tuple[int, ...] = ()
    removed: int = 0
    next: int = 1
    first: int = 1
    name: str = "events"
    id: str = "a"

    def more(self, count: int, skipped: int = 0) -> "Messages":
        """Return the partition with more messages, behind numbers that were skipped."""
        start = self.next + skipped
        return replace(self, offsets=(*self.offsets, *range(start, start + count)), next=start + count)

    def without(self, count: int) -> "Messages":
        """Return the partition without its oldest messages, as retention leaves it."""
        left = self.offsets[count:]
        return replace(self, offsets=left, removed=self.removed + count, first=left[0] if left else self.next)

    def without_tail(self, count: int) -> "Messages":
        """Return the partition without its newest messages, as a broker leaves it that lost power."""
        return replace(self, offsets=self.offsets[: len(self.offsets) - count], next=self.next + RAISE)

    def without_some(self, *places: int) -> "Messages":
        """Return the partition without the messages at these places of its list, which were lost in the middle."""
        left = tuple(offset for at, offset in enumerate(self.offsets) if at not in places)
        return replace(self, offsets=left, removed=self.removed + len(self.offsets) - len(left))

    def described(self, runs_max: int | None = None) -> Partition:
        """Return the partition; with so many runs at most, some of them joined."""
        runs: list[list[int]] = []
        for offset in self.offsets:
            if runs and runs[-1][1] == offset:
                runs[-1][1] += 1
            else:
                runs.append([offset, offset + 1])
        rows, size = self.removed + len(self.offsets), 100 * len(self.offsets)
        is_exact = runs_max is None or len(runs) < runs_max
        found = Runs(runs if runs_max is None else joined(runs, runs_max))
        where = (self.first, self.next)
        return Partition("events", self.name, 0, self.id, *where, rows, size, found, is_exact=is_exact)


def joined(runs: list[list[int]], runs_max: int) -> list[list[int]]:
    """Return at most so many runs as a broker does: the smallest gaps between them are left out."""
    gaps = sorted(range(1, len(runs)), key=lambda at: runs[at][0] - runs[at - 1][1])
    left_out = set(gaps[: max(0, len(runs) - runs_max)])
    found: list[list[int]] = []
    for at, (start, end) in enumerate(runs):
        if at in left_out:
            found[-1] = [found[-1][0], end]
        else:
            found.append([start, end])
    return found


@st.composite
def some_messages(draw: st.DrawFn, name: str = "events") -> Messages:
    """Draw messages with gaps, some of them removed by retention."""
    pieces: Sequence[tuple[int, int]] = draw(
        st.lists(st.tuples(st.sampled_from([0, RAISE, RAISE + 1]), st.integers(0, 40)), max_size=4)
    )
    found = Messages(name=name)
    for skipped, count in pieces:
        found = found.more(count, skipped)
    found = found.without(draw(st.integers(0, len(found.offsets))))
    return replace(found, next=found.next + draw(st.sampled_from([0, RAISE])))
