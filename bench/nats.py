"""NATS JetStream where its programs `nats-server` and `nats` are in the path.

Three servers on loopback have a stream with three replicas. It is a peer of the rows of clusters, with a sync of each
message and with its default, which syncs every two minutes. The servers run while they are measured. The load is that
of NATS's own `nats bench`.
"""

import csv
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.broker import free_ports

__all__ = ["Found", "Sync", "is_installed", "measured"]

SERVER: Final = "nats-server"
CLIENT: Final = "nats"
SERVERS: Final = 3
STREAM: Final = "benchstream"
SUBJECT: Final = "bench"
START_SECONDS_MAX: Final = 60
SECONDS_MAX: Final = 300
POLL_SECONDS: Final = 0.1
ANSWER_TIME: Final = "60s"
"""Many publishers wait longer than its usual 5 s for a confirm when each message is synced."""


@dataclass(frozen=True, slots=True)
class Sync:
    """When a server syncs its files, as its settings have it, and how many messages that takes a few seconds for."""

    interval: str
    messages: int


@dataclass(frozen=True, slots=True)
class Found:
    """Confirmed messages a second of all publishers together, and the median time of a confirm of one of them."""

    rate: float
    p50_us: float


def is_installed() -> bool:
    return shutil.which(SERVER) is not None and shutil.which(CLIENT) is not None


def measured(sync: Sync, kind: str, *flags: str) -> Found:
    """Publish messages of 100 bytes by `nats bench js pub`, in a way that it has."""
    with tempfile.TemporaryDirectory(prefix="bench-nats-") as name, _servers(Path(name), sync) as url:
        created = ("--subjects", SUBJECT, "--storage", "file", "--replicas", str(SERVERS), "--defaults")
        _run(url, "stream", "add", STREAM, *created)
        table = Path(name) / "bench.csv"
        sent = ("--size", "100B", "--msgs", str(sync.messages), "--no-progress", "--csv", str(table))
        _run(url, "bench", "js", "pub", kind, SUBJECT, *sent, *flags)
        return _of_table(table, sync.messages)


def _of_table(table: Path, messages: int) -> Found:
    """Read a row of each publisher."""
    with table.open() as text:
        rows = list(csv.DictReader(text))
    seconds = max(float(row["DurationSecs"]) for row in rows)
    times = sorted(float(row["P50LatencyMicroSecs"]) for row in rows)
    return Found(messages / seconds, times[len(times) // 2])


def _run(url: str, *arguments: str, answer_time: str = ANSWER_TIME) -> None:
    command = [CLIENT, "--no-context", "--server", url, "--timeout", answer_time, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, timeout=SECONDS_MAX, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")


@contextmanager
def _servers(folder: Path, sync: Sync) -> Iterator[str]:
    """Start the servers, and return the address of the first once they have chosen a leader."""
    ports = free_ports(2 * SERVERS)
    clients, routes = ports[:SERVERS], ports[SERVERS:]
    with ExitStack() as stack:
        for number in range(SERVERS):
            settings = folder / f"{number}.conf"
            settings.write_text(_settings(folder, number, clients[number], routes[number], routes, sync))
            log = stack.enter_context((folder / f"{number}.log").open("wb"))
            server = subprocess.Popen([SERVER, "-c", str(settings)], stdout=log, stderr=log)
            stack.callback(_stop, server)
        for port in clients:
            _until_open(port)
        url = f"nats://127.0.0.1:{clients[0]}"
        _until_led(url)
        yield url


def _settings(folder: Path, number: int, port: int, route: int, routes: Sequence[int], sync: Sync) -> str:
    others = ", ".join(f"nats://127.0.0.1:{each}" for each in routes)
    return (
        f"server_name: bench{number}\nlisten: 127.0.0.1:{port}\n"
        f"jetstream {{ store_dir: {folder}/{number}, sync_interval: {sync.interval} }}\n"
        f"cluster {{ name: bench, listen: 127.0.0.1:{route}, routes: [{others}] }}\n"
    )


def _until_open(port: int) -> None:
    until = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(POLL_SECONDS)


def _until_led(url: str) -> None:
    """Wait until streams can be listed, for which the servers need a leader."""
    until = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            return _run(url, "stream", "ls", "--names", answer_time="1s")
        except RuntimeError:
            if time.monotonic() > until:
                raise
            time.sleep(POLL_SECONDS)


def _stop(server: "subprocess.Popen[bytes]") -> None:
    server.terminate()
    try:
        server.wait(timeout=30)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
