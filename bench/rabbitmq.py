"""Debian's RabbitMQ where it is installed: on loopback, with a folder of its own.

It is a peer of the rows over AMQP, started for the first row that wants it, and the old broker of the tests that move
queues to this one. It ends with this process. What is not installed is not measured.
"""

import atexit
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

from support.broker import free_ports

__all__ = ["RabbitMq", "is_installed", "rabbitmq", "rabbitmq_cluster"]

# Debian's commands in the path change the user; these do not.
COMMANDS = Path("/usr/lib/rabbitmq/bin")
SERVER = COMMANDS / "rabbitmq-server"
CONTROL = COMMANDS / "rabbitmqctl"
START_SECONDS_MAX = 180
POLL_SECONDS = 0.1
CLUSTER_NODES = 3


@cache
def rabbitmq() -> "RabbitMq | None":
    """Return the broker of this process, None where it is not installed."""
    return _started(1)


@cache
def rabbitmq_cluster() -> "RabbitMq | None":
    """Return the cluster of three nodes of this process, None where it is not installed."""
    return _started(CLUSTER_NODES)


def _started(nodes: int) -> "RabbitMq | None":
    if not is_installed():
        return None
    broker = RabbitMq(nodes)
    atexit.register(broker.stop)
    return broker


def is_installed() -> bool:
    return SERVER.exists() and shutil.which("epmd") is not None


class RabbitMq:
    """A running RabbitMQ of one node or several, with the user guest.

    With `environment`, its commands reach the first node.
    """

    def __init__(self, nodes: int = 1) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bench-rabbitmq-")
        folder = Path(self._folder.name)
        epmd, *ports = free_ports(1 + 2 * nodes)
        self.port = ports[0]
        settings = _cluster_settings(folder, self.port) if nodes > 1 else None
        environments = [_environment(folder, ports[number], ports[nodes + number], epmd) for number in range(nodes)]
        self.environment = environments[0]
        # Started here, it is not left behind by Erlang.
        command = ["epmd", "-port", str(epmd), "-address", "127.0.0.1"]
        self._processes = [self._start(command, self.environment)]
        for number, environment in enumerate(environments):
            # The first node is there before the others join it.
            joins = {} if number == 0 or settings is None else {"RABBITMQ_CONFIG_FILE": str(settings)}
            self._processes.append(self._start([str(SERVER)], environment | joins))
            self._until_ready(int(environment["RABBITMQ_NODE_PORT"]), Path(environment["RABBITMQ_PID_FILE"]))
        if nodes > 1:
            self._until_joined(nodes)

    @property
    def uri(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    @property
    def pid(self) -> int:
        """The process of the first Erlang machine, which the script that was started becomes or starts."""
        return int(Path(self.environment["RABBITMQ_PID_FILE"]).read_text())

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._folder.cleanup()

    def _start(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        with (Path(self._folder.name) / "out.log").open("ab") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def _until_ready(self, port: int, pid_file: Path) -> None:
        for _ in range(int(START_SECONDS_MAX / POLL_SECONDS)):
            if self._processes[-1].poll() is not None:
                break
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=1):
                    if pid_file.exists():
                        return
            except OSError:
                pass
            time.sleep(POLL_SECONDS)
        self._fail("does not start")

    def _until_joined(self, nodes: int) -> None:
        command = [str(CONTROL), "cluster_status", "--formatter", "json", "--quiet"]
        until = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < until:
            done = subprocess.run(command, env=self.environment, stdout=subprocess.PIPE, check=True)
            if len(json.loads(done.stdout)["running_nodes"]) == nodes:
                return
        self._fail(f"has not {nodes} nodes in its cluster")

    def _fail(self, problem: str) -> None:
        text = (Path(self._folder.name) / "out.log").read_text(errors="replace")
        self.stop()
        raise RuntimeError(f"RabbitMQ is installed and {problem}\n{text}")


def _node_name(port: int) -> str:
    return f"bench{port}@localhost"


def _cluster_settings(folder: Path, first_port: int) -> Path:
    """Write the settings of the nodes that join the first one."""
    path = folder / "joining.conf"
    lines = {
        "peer_discovery_backend": "classic_config",
        "classic_config.nodes.1": _node_name(first_port),
        "randomized_startup_delay_range.min": "0",
        "randomized_startup_delay_range.max": "1",
    }
    path.write_text("".join(f"cluster_formation.{name} = {value}\n" for name, value in lines.items()))
    return path


def _environment(folder: Path, port: int, distribution: int, epmd: int) -> dict[str, str]:
    plugins = folder / "enabled_plugins"
    plugins.write_text("[].\n")
    own = {
        "HOME": str(folder),
        "PATH": f"{COMMANDS}:{os.environ['PATH']}",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(epmd),
        "RABBITMQ_NODENAME": _node_name(port),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / f"pid-{port}"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none.conf"),
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    return {name: value for name, value in os.environ.items() if not name.startswith("RABBITMQ_")} | own
