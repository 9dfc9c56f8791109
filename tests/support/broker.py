"""A broker as its users have it: a process started by `penstock serve`, on its own ports.

It keeps its ports and its data directory over restarts, so that clients can find it again after a kill. It knows
nothing of the broker's internals: it is ready when /health/ready says so.
"""

import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import Self

READY_SECONDS_MAX = 60
POLL_SECONDS = 0.02
PORTS = (10_000, 30_000)
_drawn = SystemRandom()
_returned_ports: set[int] = set()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a broker runs: its address, and the command that enters its network namespace, if it has one."""

    host: str
    enter: tuple[str, ...] = ()


LOOPBACK = Place("127.0.0.1")


class BrokerError(Exception):
    """The broker did not start or did not stop; the text ends with its log."""


class Broker:
    """Use it as a context manager: it starts on entering and is killed on leaving, if it still runs."""

    def __init__(
        self,
        data_dir: Path,
        *flags: str,
        trust: ssl.SSLContext | None = None,
        shards: int | None = None,
        place: Place = LOOPBACK,
        program: str | None = None,
    ) -> None:
        """Make a broker; `trust` is for health and metrics over TLS, `program` the command of another version.

        `shards` are those of the virtual host `/` in a new data directory, for a test that looks at files of its logs;
        the others take the number of this run.
        """
        self.data_dir = data_dir
        self._shards = shards_of_this_run() if shards is None else shards
        self.grpc, self.metrics = free_ports(2)
        self._flags = flags
        self.program = program or penstock_command()
        self._place = place
        self._trust = trust
        self._log = data_dir.parent / f"{data_dir.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self._place.host}:{self.grpc}"

    @property
    def health(self) -> str:
        return f"{'https' if self._trust else 'http'}://{self._place.host}:{self.metrics}"

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Return whether the process is there; one that stops by itself ends."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_status(self) -> int | None:
        """The exit status of a process that ended by itself; `None` while it runs."""
        return self._running().poll()

    def uri(self, vhost: str = "", user: str = "guest", password: str = "guest") -> str:
        return f"penstock://{user}:{password}@{self.address}/{vhost}"

    def start(self) -> Self:
        """Start the process and wait until it is ready."""
        command = [
            *(*self._place.enter, self.program),
            *("serve", "--data-dir", str(self.data_dir), "--grpc", self.address),
            *("--metrics", f"{self._place.host}:{self.metrics}", "--amqp", "off", "--http", "off", *self._flags),
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        if self._shards != 1:  # a benchmark's broker of an earlier commit does not know the setting
            environment["PENSTOCK_DEFAULT_VHOST_SHARDS"] = str(self._shards)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        for _ in range(int(READY_SECONDS_MAX / POLL_SECONDS)):
            if self._is_ready():
                return self
            self._refuse_end()
        self.kill()
        raise BrokerError(f"not ready after {READY_SECONDS_MAX} s\n{self.log}")

    def kill(self) -> None:
        """Kill it as `kill -9` does."""
        process = self._running()
        process.kill()
        process.wait()
        self._process = None

    def stop(self) -> int:
        """Stop it as an orchestrator does: SIGTERM, then wait. Return the exit status."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(f"still there 60 s after SIGTERM\n{self.log}") from None
        self._process = None
        return status

    def restart(self) -> None:
        self.stop()
        self.start()

    def scrape(self, path: str = "/metrics") -> str:
        with urllib.request.urlopen(self.health + path, timeout=5, context=self._trust) as response:
            text: bytes = response.read()
        return text.decode()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise BrokerError("the broker is not running; call start() first")
        return self._process

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.health}/health/ready", timeout=1, context=self._trust) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _refuse_end(self) -> None:
        """Wait a moment, and raise when the process has ended meanwhile."""
        try:
            status = self._running().wait(timeout=POLL_SECONDS)
        except subprocess.TimeoutExpired:
            return
        self._process = None
        raise BrokerError(f"ended with {status} before it was ready\n{self.log}")


def shards_of_this_run() -> int:
    """Return how many shards virtual hosts have in this run of the tests; `make test-python` draws it."""
    return int(os.environ.get("VHOST_SHARDS", "1"))


def penstock_command() -> str:
    """Return the command beside the Python that runs this, installed by `make setup`."""
    command = Path(sys.executable).with_name("penstock")
    if not command.exists():
        raise BrokerError(f"{command} is missing; run make setup and use .venv/bin/python")
    return str(command)


def free_ports(count: int) -> list[int]:
    """Return free ports that were not returned before: those of brokers that start later are free until then.

    They are below those that the system gives to connections of clients, one of which may otherwise have the port of a
    broker when that starts again. Each worker of pytest-xdist draws from ports of its own. Another process may take one
    before the broker does, which then reports it and ends.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    worker_count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    ports: list[int] = []
    while len(ports) < count:
        port = _drawn.randrange(PORTS[0] + worker, PORTS[1], worker_count)
        if port not in _returned_ports and _is_free(port):
            ports.append(port)
            _returned_ports.add(port)
    return ports


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
