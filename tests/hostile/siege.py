"""What is seen while a case runs: the broker's memory, and how a client that behaves fares."""

import time
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from hostile.bystander import Bystander, Figures
from hostile.target import Target
from support import Broker

QUIET_SECONDS = 3
SETTLE_SECONDS_MAX = 120
_never = Event()


@dataclass
class Row:
    case: str
    answer: str
    before_mb: float
    after_mb: float
    beside: Figures


class Siege:
    """The broker under attack, and what is seen of it."""

    def __init__(self, broker: Broker, target: Target, bystander: Bystander) -> None:
        self.broker, self.target, self.bystander = broker, target, bystander
        self.rows: list[Row] = []
        since = time.monotonic()
        _never.wait(QUIET_SECONDS)
        self.quiet = bystander.figures(since)

    def memory_mb(self) -> float:
        """Of the broker's own: segments that are mapped are the page cache's."""
        status = Path(f"/proc/{self.broker.pid}/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0]) / 1_024

    def settled_memory_mb(self, wanted: float) -> float:
        """Once it is at most that much, or has stayed above for long."""
        until = time.monotonic() + SETTLE_SECONDS_MAX
        while (found := self.memory_mb()) > wanted and time.monotonic() < until:
            _never.wait(0.2)
        return found

    def wait_for_round_trips(self, count: int) -> None:
        wanted, until = self.bystander.count() + count, time.monotonic() + SETTLE_SECONDS_MAX
        while self.bystander.count() < wanted:
            assert time.monotonic() < until, "the client that behaves is no longer served"
            _never.wait(0.05)

    def table(self) -> str:
        quiet = self.quiet
        lines = [
            f"quiet: {quiet.count} round trips, median {quiet.median_ms:.1f} ms, p99 {quiet.p99_ms:.1f} ms",
            f"{'case':58} {'MB before':>9} {'after':>6} {'p99 ms':>7} {'x quiet':>7}  answer",
        ]
        for row in self.rows:
            times = row.beside.p99_ms / self.quiet.p99_ms if self.quiet.p99_ms else 0.0
            lines.append(
                f"{row.case:58} {row.before_mb:9.0f} {row.after_mb:6.0f} {row.beside.p99_ms:7.1f} {times:7.1f}"
                f"{'*' if times > 3 else ' '} {row.answer}"
            )
        above = sum(row.beside.p99_ms > 3 * self.quiet.p99_ms for row in self.rows)
        lines.append(
            f"{len(self.rows)} cases; in {above} the p99 of the client that behaves was above 3 times quiet (*)"
        )
        return "\n".join(lines)
