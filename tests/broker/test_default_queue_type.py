"""The default queue type of a virtual host, from the command line to AMQP, over a restart and in a backup."""

import json
import subprocess
from pathlib import Path

import pika

import penstock
from support import Broker
from support.broker import free_ports, penstock_command


def types(broker: Broker) -> dict[str, str]:
    with penstock.connect(broker.uri("shop")) as connection:
        return {queue.name: queue.type for queue in connection.admin.list_queues()}


def declared(port: int, name: str, **flags: bool) -> None:
    where = pika.ConnectionParameters("127.0.0.1", port, "shop", socket_timeout=60, blocked_connection_timeout=60)
    with pika.BlockingConnection(where) as connection:
        connection.channel().queue_declare(name, **flags)


def test_queues_that_name_no_type_get_the_default_one_also_after_a_restart(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    flags = ("--amqp", f"127.0.0.1:{port}")
    with Broker(tmp_path / "data", *flags) as broker:
        with penstock.connect(broker.uri()) as root:
            assert root.admin.create_vhost("shop", default_queue_type="quorum")
            root.admin.set_permission("guest", "shop", ".*", ".*", ".*")
        declared(port, "orders", durable=True)
        declared(port, "fleeting")
        assert types(broker) == {"orders": "quorum", "fleeting": "classic"}
        declared(port, "orders", durable=True)

    with Broker(tmp_path / "data", *flags) as broker:
        declared(port, "orders", durable=True)
        declared(port, "more", durable=True)
        with penstock.connect(broker.uri("shop")) as connection:
            connection.declare_queue("over-grpc")
            connection.admin.set_default_queue_type("shop", "classic")
            connection.declare_queue("plain")
            vhosts = {vhost.name: vhost.default_queue_type for vhost in connection.admin.list_vhosts()}
        assert vhosts == {"/": "classic", "shop": "classic"}
        assert types(broker) == {"orders": "quorum", "more": "quorum", "over-grpc": "quorum", "plain": "classic"}


def test_the_command_line_sets_it(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:

        def run(*arguments: str) -> str:
            command = [penstock_command(), "vhost", *arguments, "--uri", broker.uri()]
            return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout

        def listed() -> dict[str, str]:
            return {each["name"]: each["default_queue_type"] for each in json.loads(run("list", "--output", "json"))}

        assert "vhost 'shop' added" in run("add", "shop", "--default-queue-type", "quorum")
        assert listed() == {"/": "classic", "shop": "quorum"}
        assert "has the default queue type 'stream'" in run("set-default-queue-type", "/", "stream")
        assert listed() == {"/": "stream", "shop": "quorum"}


def test_a_backup_has_it(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker, penstock.connect(broker.uri()) as root:
        root.admin.create_vhost("shop", default_queue_type="quorum")
        root.admin.backup(str(tmp_path / "backup"))
    restore = [penstock_command(), "restore", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "restored")]
    subprocess.run(restore, check=True, capture_output=True, timeout=300)

    with Broker(tmp_path / "restored") as broker, penstock.connect(broker.uri()) as root:
        assert {vhost.name: vhost.default_queue_type for vhost in root.admin.list_vhosts()}["shop"] == "quorum"
        exported = json.loads(root.admin.export_definitions())

    found = {vhost["name"]: vhost.get("default_queue_type") for vhost in exported["vhosts"]}
    assert found == {"/": None, "shop": "quorum"}
