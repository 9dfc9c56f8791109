"""Brokers in the place of containers, for suites that start RabbitMQ in one: it takes the place of their own client.

The first container of a session is the broker that serves the whole run; each further one is a process of its own.
`rabbitmqctl stop_app` and `start_app` stop and start such a process. It has only the functions that the suites call.
"""

import os
import signal
import socket
import subprocess
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep
from typing import Any
from uuid import uuid4

_SHARED = "shared"
_READY_TRIES_MAX, _READY_SECONDS = 600, 0.1


class DockerNotAvailableError(Exception):
    """Not raised: a broker can always be started."""


@dataclass
class DockerHostInfo:
    """The place of the brokers."""

    container_host: str = "127.0.0.1"


@dataclass
class ContainerInfo:
    """A broker: its ports by the names of RabbitMQ's."""

    id: str
    ports: dict[str, int]
    host: str = "127.0.0.1"


@dataclass
class _Broker:
    """A process with its own data and ports, which stay the same over restarts."""

    folder: Path
    ports: list[int]
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        if self.process is not None:
            return
        amqp, grpc, metrics = (f"127.0.0.1:{port}" for port in self.ports)
        command = [os.environ["BROKER_COMMAND"], "serve", "--data-dir", str(self.folder / "data"), "--amqp", amqp]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--grpc", grpc, "--metrics", metrics, "--http", "off"], stdout=log, stderr=log
            )
        for _ in range(_READY_TRIES_MAX):
            if _is_ready(metrics):
                return
            sleep(_READY_SECONDS)
        raise AssertionError(f"the broker is not ready; its log is in {self.folder}")

    def end(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait()
            self.process = None


_brokers: dict[str, _Broker] = {}


class DockerClient:
    """Implements what the suites call of their own client."""

    def __init__(self, host: DockerHostInfo | None = None) -> None:
        self.host = host or DockerHostInfo()

    def run(self, image: str, ports: list[str], environment: dict[str, str] | None = None) -> ContainerInfo:
        """Return the run's broker if TLS is asked for, too, else one that is started for it."""
        if len(ports) > 1:
            known = {"5672/tcp": os.environ["RABBITMQ_5672_TCP"], "5671/tcp": os.environ["RABBITMQ_5671_TCP"]}
            return ContainerInfo(_SHARED, {name: int(known[name]) for name in ports})
        name = uuid4().hex
        folder = Path(os.environ["BROKER_FOLDER"]) / name
        folder.mkdir(parents=True)
        broker = _brokers[name] = _Broker(folder, _free_ports(3))
        broker.start()
        return ContainerInfo(name, {ports[0]: broker.ports[0]})

    def start(self, name: str) -> None:
        if name in _brokers:
            _brokers[name].start()

    def kill(self, name: str) -> None:
        if name in _brokers:
            _brokers[name].end(signal.SIGKILL)

    def stop(self, name: str, timeout: int = 10) -> None:
        if name in _brokers:
            _brokers[name].end(signal.SIGTERM)

    def remove(self, name: str) -> None:
        self.kill(name)
        _brokers.pop(name, None)

    def inspect(self, name: str) -> dict[str, Any]:
        broker = _brokers[name]
        ports = {"5672/tcp": [{"HostPort": str(broker.ports[0])}]}
        return {"State": {"Running": broker.process is not None}, "NetworkSettings": {"Ports": ports}}

    def _parse_ports(self, info: dict[str, Any]) -> dict[str, int]:
        return {name: int(ports[0]["HostPort"]) for name, ports in info["NetworkSettings"]["Ports"].items()}

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """Answer what runs a command in a container: it has ended when it is asked for."""
        parts = path.strip("/").split("/")
        if parts[0] == "containers" and parts[2] == "exec" and body is not None:
            broker, command = _brokers[parts[1]], body["Cmd"][-1]
            if command == "stop_app":
                broker.end(signal.SIGTERM)
            elif command == "start_app":
                broker.start()
            return {"Id": parts[1]}
        return {"Running": False, "ExitCode": 0}


def check_docker_available() -> DockerHostInfo:
    return DockerHostInfo()


def _is_ready(metrics: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{metrics}/health/ready", timeout=1) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
