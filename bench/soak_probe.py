"""Confirm latency during a soak: a process of its own, with one message in flight per durability.

It prints a line of JSON each second: the microseconds of every confirm, by durability, and how many messages it has
published. It ends when its standard input closes, so that it never outlives its parent.
"""

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE
from dataclasses import dataclass, field
from itertools import count
from select import select

import penstock
from bench.soak_ledger import Ledger, body

__all__ = ["BODY_BYTES", "DURABILITIES", "QUEUE", "Probe"]

QUEUE = "probe"
BODY_BYTES = 104
DURABILITIES = ("os", "disk")
PAUSE_SECONDS = 0.01
LINE_SECONDS = 1.0


@dataclass
class Probe:
    """Starts the process and collects its output. Its published messages are entered in `ledger`."""

    uri: str
    ledger: Ledger
    times: dict[str, list[float]] = field(default_factory=lambda: {durability: [] for durability in DURABILITIES})
    pid: int | None = None

    async def follow(self, deadline: float) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.soak_probe", self.uri), stdin=PIPE, stdout=PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid = process.pid
        ending = asyncio.get_running_loop().call_later(max(0.0, deadline - time.perf_counter()), process.stdin.close)
        async for line in process.stdout:
            found = json.loads(line)
            self.ledger.confirmed = found["published"]
            for durability in DURABILITIES:
                self.times[durability] += found[durability]
        ending.cancel()
        self.pid = None
        if await process.wait() != 0:
            raise RuntimeError(f"the latency probe ended with {process.returncode}; its message is above")

    def taken(self) -> dict[str, list[float]]:
        """Return the times since the last call, sorted."""
        found = {durability: sorted(times) for durability, times in self.times.items()}
        for times in self.times.values():
            times.clear()
        return found


def measure(uri: str) -> None:
    connections = {durability: penstock.connect(uri, durability=durability) for durability in DURABILITIES}
    published = 0
    while not has_ended():
        times = measured(connections, published)
        published += sum(len(each) for each in times.values())
        print(json.dumps({"published": published, **times}), flush=True)
    for connection in connections.values():
        connection.close()


def measured(connections: dict[str, penstock.Connection], first: int) -> dict[str, list[float]]:
    """Return the confirm times of about a second; the messages are numbered from `first` on."""
    times: dict[str, list[float]] = {durability: [] for durability in connections}
    numbers = count(first)
    ends = time.perf_counter() + LINE_SECONDS
    while (now := time.perf_counter()) < ends:
        for durability, connection in connections.items():
            content = body(next(numbers), BODY_BYTES)
            started = time.perf_counter()
            connection.publish(content, routing_key=QUEUE)
            times[durability].append(round((time.perf_counter() - started) * 1e6, 1))
        time.sleep(max(0.0, now + PAUSE_SECONDS - time.perf_counter()))
    return times


def has_ended() -> bool:
    return bool(select([sys.stdin], [], [], 0)[0])


if __name__ == "__main__":
    measure(sys.argv[1])
