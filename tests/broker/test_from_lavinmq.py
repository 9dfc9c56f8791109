"""The page "Coming from LavinMQ": its commands of `penstock` run as written, and its shovels reach the queue.

LavinMQ itself is not there: a client does what its shovel does.
"""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pika

import penstock
from support import Broker
from support.broker import free_ports, penstock_command

PAGE = (Path(__file__).parents[2] / "docs" / "from-lavinmq.md").read_text()
BLOCKS = [block.replace("\\\n", " ") for block in re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]
ADDRESS = "penstock.example.com:5672"
DEFINITIONS = {
    "lavinmq_version": "2.9.1",
    "users": [],
    "vhosts": [{"name": "/"}],
    "permissions": [],
    "queues": [
        {
            "name": "orders",
            "vhost": "/",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-max-priority": 5, "x-delivery-limit": 3, "x-dead-letter-exchange": "lost"},
        }
    ],
    "exchanges": [],
    "bindings": [],
    "policies": [],
    "parameters": [],
    "global_parameters": [],
}


def shovels() -> list[dict[str, Any]]:
    """Return the definitions of the shovel that the page sets, by the command and by the management API."""
    (command,) = [shlex.split(block) for block in BLOCKS if "add_shovel" in block]
    options = dict(word.removeprefix("--").split("=", maxsplit=1) for word in command if word.startswith("--"))
    (call,) = [shlex.split(block) for block in BLOCKS if block.startswith("curl")]
    value: dict[str, Any] = json.loads(call[call.index("--data") + 1])["value"]
    return [options, {name: str(each) for name, each in value.items()}]


def test_both_ways_to_set_the_shovel_set_the_same() -> None:
    by_command, by_http = shovels()

    assert by_command == by_http
    assert by_command["ack-mode"] == "on-confirm"


def test_the_commands_of_the_page_let_the_shovel_fill_the_queue(tmp_path: Path) -> None:
    (tmp_path / "definitions.json").write_text(json.dumps(DEFINITIONS))
    port = free_ports(1)[0]
    with Broker(tmp_path / "data", "--amqp", f"127.0.0.1:{port}") as broker:
        run(broker, BLOCKS[0], tmp_path)
        run(broker, BLOCKS[1], tmp_path)
        shovel = shovels()[0]
        publish(shovel["dest-uri"].replace(ADDRESS, f"127.0.0.1:{port}"), shovel["dest-queue"])
        assert "orders" in run(broker, BLOCKS[-2], tmp_path)
        run(broker, BLOCKS[-1], tmp_path)

        with penstock.connect(broker.uri()) as connection:
            queue = connection.admin.get_queue("orders")
            assert (queue.ready_count, queue.arguments["x-delivery-limit"]) == (1, 3)
            assert "shovel" not in [user.name for user in connection.admin.list_users()]


def run(broker: Broker, block: str, folder: Path) -> str:
    """Run those commands of a block that are of `penstock`, and return what they print."""
    commands = "\n".join(line for line in block.splitlines() if line.startswith("penstock "))
    path = f"{Path(penstock_command()).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PENSTOCK_URI": broker.uri(), "PATH": path}
    done = subprocess.run(
        ["bash", "-euc", commands], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert commands
    assert done.returncode == 0, f"{commands}\n{done.stderr}"
    return done.stdout


def publish(uri: str, queue: str) -> None:
    """Publish as the shovel does: it looks for the queue, and has messages confirmed."""
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, passive=True)
        channel.confirm_delivery()
        channel.basic_publish("", queue, b"moved", mandatory=True)
