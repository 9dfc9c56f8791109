"""One run: a fresh broker on a fresh directory, a load, and the resources that the broker's process used.

Processor time comes from /proc, so that every row is measured alike, whatever makes its load.
"""

import inspect
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import penstock
from support import Broker
from support.broker import penstock_command

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@cache
def output_flags(kind: str) -> tuple[str, ...]:
    """Return the flags for JSON that keep the queues of a load, as the measured commit's command line has them."""
    done = subprocess.run([penstock_command(), "perf", kind, "--help"], stdout=subprocess.PIPE, check=True, text=True)
    keep = ("--keep",) if "--keep" in done.stdout else ()
    return (*keep, "--output", "json") if "--output" in done.stdout else (*keep, "--json")


@cache
def durability_name() -> str:
    """Return what the measured commit calls the durability of a confirm; older ones call it a level."""
    return "durability" if "durability" in inspect.signature(penstock.connect).parameters else "level"


def administration(connection: Any) -> Any:
    """Return what has the verbs of administration: of older commits that are measured, the connection itself."""
    return getattr(connection, "admin", connection)


@dataclass(frozen=True)
class Load:
    """Environment of a row's measurement."""

    broker: Broker
    seconds: float
    durability: str
    backlog: int = 10_000_000
    queues: int = 100_000

    @property
    def uri(self) -> str:
        return self.broker.uri()

    @property
    def confirms(self) -> dict[str, Any]:
        """The option of a connection, and of a put, that says when messages are confirmed."""
        return {durability_name(): self.durability}

    def perf(self, kind: str, *flags: str, seconds: float | None = None) -> dict[str, Any]:
        """Run the native load generator as a process; for `seconds`, unless flags end it sooner."""
        limit = self.seconds if seconds is None else seconds
        command = [
            penstock_command(),
            "perf",
            kind,
            "--uri",
            self.uri,
            "--seconds",
            str(limit),
            *(f"--{durability_name()}" if flag == "--durability" else flag for flag in flags),
            *output_flags(kind),
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=limit * 3 + 60)
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def perf_amqp(self, uri: str, pid: int, *flags: str) -> dict[str, Any]:
        """Run the native load generator for AMQP as a process, against any broker."""
        command = [penstock_command(), "perf", "amqp", "--uri", uri, "--pid", str(pid), "--seconds", str(self.seconds)]
        command += [*flags, "--output", "json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=self.seconds * 3 + 60)
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    @contextmanager
    def counting_cpu(self, figures: dict[str, float], count: Callable[[], int]) -> Iterator[None]:
        """Add `broker_cpu_us`: the broker's processor time in the block per each of `count()` messages."""
        before = self.cpu_seconds()
        yield
        figures["broker_cpu_us"] = (self.cpu_seconds() - before) * 1e6 / max(1, count())

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.broker.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.broker.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def is_over(self, started: float) -> bool:
        return time.perf_counter() - started >= self.seconds


class Measurable(Protocol):
    @property
    def durability(self) -> str: ...
    @property
    def measure(self) -> Callable[[Load], dict[str, float]]: ...


class Runner:
    """Starts a new broker for each run, so that no run inherits another's log."""

    def __init__(self, directory: Path, seconds: float, backlog: int, queues: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._seconds = seconds
        self._backlog = backlog
        self._queues = queues

    def run(self, row: Measurable) -> dict[str, float]:
        with tempfile.TemporaryDirectory(dir=self._directory) as folder, Broker(Path(folder) / "data") as broker:
            return row.measure(Load(broker, self._seconds, row.durability, self._backlog, self._queues))
