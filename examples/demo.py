"""Sends the lines of a web server's log through a topic exchange to two queues, consumes both, and shows what arrived.

`make demo` runs it. It starts a broker of its own on a temporary directory and free ports, and stops it at the end, so
it disturbs nothing and needs nothing.
"""

import asyncio
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from penstock import aio

LOG = Path(__file__).with_name("access.log")
EXCHANGE = "web"
BINDINGS = {"all-requests": "web.#", "server-errors": "web.5xx.#"}
PUBLISHERS = 1_000


@dataclass
class Arrived:
    """Messages that one queue's consumer received."""

    keys: Counter[str]
    byte_count: int
    seconds: float

    @property
    def count(self) -> int:
        return self.keys.total()


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """Run a broker during a `with` block; yield its URI."""
    grpc, metrics = free_port(), free_port()
    command = [
        *(str(Path(sys.executable).with_name("penstock")), "serve", "--data-dir", str(folder / "data")),
        *("--grpc", f"127.0.0.1:{grpc}", "--metrics", f"127.0.0.1:{metrics}", "--amqp", "off", "--http", "off"),
    ]
    with (folder / "broker.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until_ready(process, f"http://127.0.0.1:{metrics}/health/ready")
        yield f"penstock://guest:guest@127.0.0.1:{grpc}/"
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def wait_until_ready(process: subprocess.Popen[bytes], url: str) -> None:
    while process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=1).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.02)
        else:
            return
    raise SystemExit(f"the broker ended with {process.returncode}; try: make run")


def routing_key(line: bytes) -> str:
    """`web.<class of status>.<method>`, as in web.5xx.get."""
    _, request, result = line.split(b'"')
    method, status = request.split()[0].decode().lower(), result.split()[0].decode()
    return f"web.{status[0]}xx.{method}"


async def publish(connection: aio.Connection, lines: list[bytes]) -> float:
    """Publish all lines, a thousand at a time, and await each confirm; return the seconds taken."""
    started = time.perf_counter()
    for first in range(0, len(lines), PUBLISHERS):
        some = lines[first : first + PUBLISHERS]
        await asyncio.gather(*(connection.publish(line, EXCHANGE, routing_key(line)) for line in some))
    return time.perf_counter() - started


async def consume(connection: aio.Connection, queue: str, expected: int) -> Arrived:
    """Consume and acknowledge the expected number of messages."""
    arrived = Arrived(Counter(), 0, 0.0)
    started = time.perf_counter()
    async for message in connection.consume(queue, prefetch=1_000):
        arrived.keys[message.routing_key] += 1
        arrived.byte_count += len(message.body)
        message.ack()
        if arrived.count == expected:
            break
    arrived.seconds = time.perf_counter() - started
    return arrived


async def run(uri: str, console: Console) -> None:
    lines = LOG.read_bytes().splitlines()
    failed = sum(".5xx." in routing_key(line) for line in lines)
    async with aio.connect(uri) as connection:
        await connection.declare_exchange(EXCHANGE, "topic", durable=True)
        for queue, pattern in BINDINGS.items():
            await connection.declare_queue(queue, durable=True)
            await connection.bind_queue(queue, EXCHANGE, pattern)
        seconds = await publish(connection, lines)
        arrived = {
            queue: await consume(connection, queue, expected)
            for queue, expected in zip(BINDINGS, (len(lines), failed), strict=True)
        }
    console.print(
        f"published {len(lines):,} lines of {LOG.name}, each confirmed: {len(lines) / seconds:,.0f} a second\n"
    )
    show(console, arrived)


def show(console: Console, arrived: dict[str, Arrived]) -> None:
    table = Table(title="what arrived")
    for name in ("queue", "binding", "messages", "bytes", "a second", "most frequent keys"):
        table.add_column(name, justify="right" if name in {"messages", "bytes", "a second"} else "left")
    for queue, seen in arrived.items():
        keys = ", ".join(f"{key} {count:,}" for key, count in seen.keys.most_common(3))
        rate = f"{seen.count / seen.seconds:,.0f}"
        table.add_row(queue, BINDINGS[queue], f"{seen.count:,}", f"{seen.byte_count:,}", rate, keys)
    console.print(table)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as uri:
        asyncio.run(asyncio.wait_for(run(uri, Console()), timeout=60))


if __name__ == "__main__":
    main()
