"""Debian's RabbitMQ where it is installed: on loopback, with a folder of its own.

It is a peer of the rows over AMQP, started for the first row that wants it, and the old broker of the tests that move
queues to this one. It ends with this process. What is not installed is not measured.
"""

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

from support.broker import free_ports

__all__ = ["RabbitMq", "is_installed", "rabbitmq"]

# Debian's commands in the path change the user; these do not.
COMMANDS = Path("/usr/lib/rabbitmq/bin")
SERVER = COMMANDS / "rabbitmq-server"
START_SECONDS_MAX = 180
POLL_SECONDS = 0.1


@cache
def rabbitmq() -> "RabbitMq | None":
    """Return the broker of this process, None where it is not installed."""
    if not is_installed():
        return None
    broker = RabbitMq()
    atexit.register(broker.stop)
    return broker


def is_installed() -> bool:
    return SERVER.exists() and shutil.which("epmd") is not None


class RabbitMq:
    """A running RabbitMQ, with the user guest. With `environment`, its commands reach it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bench-rabbitmq-")
        self.port, distribution, epmd = free_ports(3)
        self.environment = environment = _environment(Path(self._folder.name), self.port, distribution, epmd)
        log = (Path(self._folder.name) / "out.log").open("wb")
        # Started here, it is not left behind by Erlang.
        self._epmd = subprocess.Popen(
            ["epmd", "-port", str(epmd), "-address", "127.0.0.1"], env=environment, stdout=log, stderr=log
        )
        self._server = subprocess.Popen([str(SERVER)], env=environment, stdout=log, stderr=log)
        log.close()
        self._pid_file = Path(environment["RABBITMQ_PID_FILE"])
        self._until_ready()

    @property
    def uri(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    @property
    def pid(self) -> int:
        """The process of the Erlang machine, which the script that was started becomes or starts."""
        return int(self._pid_file.read_text())

    def stop(self) -> None:
        for process in (self._server, self._epmd):
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._folder.cleanup()

    def _until_ready(self) -> None:
        for _ in range(int(START_SECONDS_MAX / POLL_SECONDS)):
            if self._server.poll() is not None:
                break
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    if self._pid_file.exists():
                        return
            except OSError:
                pass
            time.sleep(POLL_SECONDS)
        text = (Path(self._folder.name) / "out.log").read_text(errors="replace")
        self.stop()
        raise RuntimeError(f"RabbitMQ is installed and does not start\n{text}")


def _environment(folder: Path, port: int, distribution: int, epmd: int) -> dict[str, str]:
    plugins = folder / "enabled_plugins"
    plugins.write_text("[].\n")
    own = {
        "HOME": str(folder),
        "PATH": f"{COMMANDS}:{os.environ['PATH']}",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(epmd),
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none.conf"),
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    return {name: value for name, value in os.environ.items() if not name.startswith("RABBITMQ_")} | own
