"""What is seen while a case runs: the broker's memory, and how a client that behaves fares.

An attacker and what it attacks keep cores busy, and take them from the client whatever the broker does about it. So the
client is also measured beside processes that do nothing but that, one a core, and what attacks do is held against this.
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from hostile.bystander import Bystander, Figures
from hostile.target import Target
from support import Broker

QUIET_SECONDS = 3
P99_TIMES_MAX = 3
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
        self.busy = self._beside_busy_cores()

    def _beside_busy_cores(self) -> Figures:
        command = [sys.executable, "-c", "while True: pass"]
        spinning = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
        try:
            since = time.monotonic()
            _never.wait(QUIET_SECONDS)
            return self.bystander.figures(since)
        finally:
            for process in spinning:
                process.kill()
                process.wait()

    def is_harmed(self, beside: Figures) -> bool:
        return beside.p99_ms > P99_TIMES_MAX * self.busy.p99_ms

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
        lines = [
            *(
                f"{name}: {found.count} round trips, median {found.median_ms:.1f} ms, p99 {found.p99_ms:.1f} ms"
                for name, found in (("quiet", self.quiet), ("beside busy cores", self.busy))
            ),
            f"{'case':58} {'MB before':>9} {'after':>6} {'p99 ms':>7} {'x busy':>7}  answer",
        ]
        for row in self.rows:
            times = row.beside.p99_ms / self.busy.p99_ms
            lines.append(
                f"{row.case:58} {row.before_mb:9.0f} {row.after_mb:6.0f} {row.beside.p99_ms:7.1f} {times:7.1f}"
                f"{'*' if self.is_harmed(row.beside) else ' '} {row.answer}"
            )
        above = sum(self.is_harmed(row.beside) for row in self.rows)
        lines.append(
            f"{len(self.rows)} cases; in {above} the p99 of the client that behaves was above"
            f" {P99_TIMES_MAX} times that beside busy cores (*)"
        )
        return "\n".join(lines)
