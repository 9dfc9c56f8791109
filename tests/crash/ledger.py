"""The state of every message over all kills of a broker: which were confirmed, and their outcome.

Numbers of several publishers share one ledger; each publisher has a range of its own, in which its numbers ascend.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from crash.load import PREFETCH, Consumer

SPAN = 1_000_000_000


def by_publisher(numbers: Iterable[int]) -> dict[int, list[int]]:
    """Return the numbers of each publisher, in order."""
    found: dict[int, list[int]] = {}
    for number in numbers:
        found.setdefault(number // SPAN, []).append(number)
    return found


@dataclass
class Published:
    """Messages of the publishers."""

    next_numbers: dict[int, int] = field(default_factory=dict)
    confirmed: set[int] = field(default_factory=set)

    def next_of(self, publisher: int) -> int:
        return self.next_numbers.get(publisher, publisher * SPAN)

    def check_known(self, delivered: Iterable[int]) -> None:
        unknown = [number for number in delivered if number >= self.next_of(number // SPAN)]
        assert unknown == [], f"never published: {unknown[:10]}"


@dataclass
class Settled:
    """Numbers that consumers of one queue acknowledged.

    `under_way` are those that the broker may not have known when it was killed: they may come once more.
    """

    acknowledged: set[int] = field(default_factory=set)
    under_way: set[int] = field(default_factory=set)

    def check(self, delivered: Iterable[int]) -> None:
        """Check deliveries before the acknowledgements of the same round are entered."""
        back = self.acknowledged.intersection(delivered) - self.under_way
        assert back == set(), f"acknowledged and back: {sorted(back)[:10]}"

    def enter(self, consumer: Consumer) -> None:
        self.check(consumer.delivered)
        self.acknowledged.update(consumer.acknowledged)
        # By credit: with PREFETCH further messages delivered, the broker had processed a settlement.
        last = {number for number in consumer.settled[-PREFETCH:] if number is not None}
        self.under_way = self.under_way.difference(consumer.acknowledged).union(last)

    def check_complete(self, confirmed: Iterable[int], left: Iterable[int]) -> None:
        lost = set(confirmed).difference(self.acknowledged, left)
        assert lost == set(), f"{len(lost)} confirmed and lost: {sorted(lost)[:10]}"


@dataclass
class Purged:
    """Purges of a queue.

    For each publisher, the last number confirmed before an answered purge was requested, and the first published after
    its answer.

    Numbers between them may exist or not.
    """

    gone_to: dict[int, int] = field(default_factory=dict)
    kept_from: dict[int, int] = field(default_factory=dict)
    # A purge was requested and not answered: it may have happened.
    is_open: bool = False

    def check(self, left: Iterable[int]) -> None:
        back = [number for number in left if number <= self.gone_to.get(number // SPAN, -1)]
        assert back == [], f"purged and back: {back[:10]}"

    def check_complete(self, confirmed: Iterable[int], left: Iterable[int]) -> None:
        if not self.is_open:
            after = {number for number in confirmed if number >= self.kept_from.get(number // SPAN, 0)}
            lost = after.difference(left)
            assert lost == set(), f"published after the purge and lost: {sorted(lost)[:10]}"


def check_order(numbers: Iterable[int]) -> None:
    """Check that the numbers of each publisher come once and in the order published."""
    for found in by_publisher(numbers).values():
        assert found == sorted(set(found)), "out of order or twice"
