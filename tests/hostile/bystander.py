"""A well-behaved client, in a process of its own, that times its round trips.

It publishes a message, waits for its confirm and its delivery, and records the time. Run `python -m hostile.bystander
URI FILE`; each line of the file is the start and the duration of a round trip, in seconds of the monotonic clock.
"""

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Self

import penstock

PAUSE_SECONDS = 0.002
QUEUE = "bystander"


def run(uri: str, path: Path) -> None:
    with penstock.connect(uri) as connection, path.open("a", buffering=1) as out:
        connection.declare_queue(QUEUE)
        with connection.consume(QUEUE, prefetch=10) as deliveries:
            while True:
                began = time.monotonic()
                connection.publish(b"ping", routing_key=QUEUE)
                next(iter(deliveries)).ack()
                out.write(f"{began:.6f} {time.monotonic() - began:.6f}\n")
                time.sleep(PAUSE_SECONDS)


@dataclass(frozen=True)
class Figures:
    """Figures of the round trips that ended within some time, in milliseconds."""

    count: int
    median_ms: float
    p99_ms: float
    max_ms: float


class Bystander:
    """The process, while entered."""

    def __init__(self, uri: str, path: Path) -> None:
        self._uri, self._path = uri, path
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._path.touch()
        place = Path(__file__).parent.parent
        command = [sys.executable, "-m", "hostile.bystander", self._uri, str(self._path)]
        self._process = subprocess.Popen(command, cwd=place)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def count(self) -> int:
        return self._path.read_text().count("\n")

    def figures(self, since: float) -> Figures:
        """Return the round trips that ended since then."""
        lines = [line.split() for line in self._path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        took = [float(each[1]) * 1_000 for each in lines if float(each[0]) + float(each[1]) >= since]
        if len(took) < 2:
            return Figures(len(took), *[max(took, default=0.0)] * 3)
        return Figures(len(took), median(took), quantiles(took, n=100)[98], max(took))


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]))
