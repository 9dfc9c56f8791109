"""Measurements during a case: the broker's memory, and the latency of a well-behaved client.

Real attackers have their own processors. Here they share those of the broker and of the client, so they get only idle
time: the result is the cost of the broker's work for an attacker. An attack is repeated every second until the client
has made a thousand round trips: of fewer the p99 would be the longest ones, which the scheduler of a busy machine
decides.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from hostile.bystander import Bystander, Figures
from hostile.target import Case, Target
from support import Broker

ROUND_TRIPS_QUIET = 4_000
ROUND_TRIPS_MIN = 1_000
ROUND_TRIPS_AFTER = 20  # after the last attack: the client is still served
ATTACK_SECONDS = 1.0
ATTACKS_MAX = 30
P99_TIMES_MAX = 3
GROWS_MB_MAX = 48  # memory that the broker may keep after a case
SETTLE_SECONDS_MAX = 120
_never = Event()


@dataclass(frozen=True)
class Row:
    case: str
    answer: str
    before_mb: float
    after_mb: float
    beside: Figures


class Siege:
    """The broker under attack, with its measurements."""

    def __init__(self, broker: Broker, target: Target, bystander: Bystander) -> None:
        self.broker, self.target, self.bystander = broker, target, bystander
        self.rows: list[Row] = []
        self._elsewhere = ThreadPoolExecutor(1, initializer=_take_idle_time)
        quiet = self._elsewhere.submit(self._after_round_trips, ROUND_TRIPS_QUIET, time.monotonic())
        self.quiet = quiet.result()

    def lay(self, case: Case) -> Row:
        """Prepare the case, attack, and wait until the memory is released."""
        row = self._elsewhere.submit(self._lay, case).result()
        self.rows.append(row)
        return row

    def _lay(self, case: Case) -> Row:
        case.prepare(self.target)
        before_mb, began = self._memory_mb(), time.monotonic()
        answer = case.attack(self.target)
        for number in range(1, ATTACKS_MAX):
            if self.bystander.figures(began).count >= ROUND_TRIPS_MIN:
                break
            _never.wait(max(0.0, began + number * ATTACK_SECONDS - time.monotonic()))
            case.attack(self.target)
        made = self.bystander.figures(began).count
        beside = self._after_round_trips(max(ROUND_TRIPS_MIN, made + ROUND_TRIPS_AFTER), began)
        return Row(case.name, answer, before_mb, self._settled_memory_mb(before_mb + GROWS_MB_MAX), beside)

    def is_harmed(self, beside: Figures) -> bool:
        return beside.p99_ms > P99_TIMES_MAX * self.quiet.p99_ms

    def _memory_mb(self) -> float:
        """Return the broker's private memory: mapped segments are page cache."""
        status = Path(f"/proc/{self.broker.pid}/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0]) / 1_024

    def _settled_memory_mb(self, wanted: float) -> float:
        """Return the memory once it is at most `wanted`, or has stayed above for long."""
        until = time.monotonic() + SETTLE_SECONDS_MAX
        while (found := self._memory_mb()) > wanted and time.monotonic() < until:
            _never.wait(0.2)
        return found

    def _after_round_trips(self, count: int, since: float) -> Figures:
        until = time.monotonic() + SETTLE_SECONDS_MAX
        while (found := self.bystander.figures(since)).count < count:
            assert time.monotonic() < until, "the client that behaves is no longer served"
            _never.wait(0.2)
        return found

    def table(self) -> str:
        quiet = self.quiet
        lines = [
            f"quiet: {quiet.count} round trips, median {quiet.median_ms:.1f} ms, p99 {quiet.p99_ms:.1f} ms",
            f"{'case':58} {'MB before':>9} {'after':>6} {'p99 ms':>7} {'x quiet':>7}  answer",
        ]
        for row in self.rows:
            times = row.beside.p99_ms / quiet.p99_ms
            lines.append(
                f"{row.case:58} {row.before_mb:9.0f} {row.after_mb:6.0f} {row.beside.p99_ms:7.1f} {times:7.1f}"
                f"{'*' if self.is_harmed(row.beside) else ' '} {row.answer}"
            )
        above = sum(self.is_harmed(row.beside) for row in self.rows)
        lines.append(
            f"{len(self.rows)} cases; in {above} the p99 of the client that behaves was above"
            f" {P99_TIMES_MAX} times that of the quiet broker (*)"
        )
        return "\n".join(lines)


def _take_idle_time() -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
