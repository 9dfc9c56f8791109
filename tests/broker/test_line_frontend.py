"""A broker without gRPC, and a front end of another protocol: log-ins, rights, audit and events are the services'."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import structlog

from penstock.node import load_settings
from penstock.node.launcher import Broker
from support.line_frontend import LineFrontend

Lines = list[MutableMapping[str, Any]]


class Client:
    """One connection of the protocol of lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, line: str) -> str:
        self._writer.write(f"{line}\n".encode())
        return (await self._reader.readline()).decode().rstrip("\n")

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


Connect = Callable[[], Awaitable[Client]]


def play(data_dir: Path, scenario: Callable[[Broker, Connect], Awaitable[None]]) -> Lines:
    """Run a scenario against a broker in this process; return the lines of its audit log."""
    off = dict.fromkeys(("grpc", "amqp", "http", "metrics"), "off")

    async def run() -> None:
        async with Broker(load_settings(None, {"data_dir": data_dir, **off}, {})) as broker:
            frontend = LineFrontend(broker.services)
            await frontend.start()

            clients: list[Client] = []

            async def connect() -> Client:
                clients.append(Client(*await asyncio.open_connection("127.0.0.1", frontend.port)))
                return clients[-1]

            try:
                await scenario(broker, connect)
            finally:
                for client in clients:
                    await client.close()
                await frontend.stop()
                await broker.stop()

    with structlog.testing.capture_logs() as lines:
        asyncio.run(run())
    return [line for line in lines if line.get("logger_name") == "audit"]


def test_a_user_logs_in_declares_binds_and_deletes_and_is_audited(tmp_path: Path) -> None:
    async def scenario(_: Broker, connect: Connect) -> None:
        client = await connect()
        assert (await client.ask("QUEUES /")).startswith("-401 ")
        assert (await client.ask("LOGIN guest wrong")).startswith("-401 ")
        assert await client.ask("LOGIN guest guest") == "+guest"
        assert await client.ask("DECLARE / letters") == "+letters"
        assert await client.ask("BIND / amq.direct letters key") == "+"
        assert (await client.ask("BIND / none letters key")).startswith("-404 ")
        assert await client.ask("QUEUES /") == "+letters"
        assert await client.ask("DELETE / letters") == "+0"
        assert (await client.ask("DELETE / letters")).startswith("-404 ")
        assert (await client.ask("FROBNICATE")).startswith("-400 ")

    lines = play(tmp_path / "data", scenario)

    assert [(line["event"], line["outcome"], line["user"]) for line in lines] == [
        ("LogIn", "done", "guest"),
        ("DeleteQueue", "done", "guest"),
        ("DeleteQueue", "refused", "guest"),
    ]
    assert lines[1]["about"] == {"vhost": "/", "name": "letters", "if_unused": False, "if_empty": False}
    assert lines[1]["peer"].startswith("127.0.0.1:")
    assert "not found" in lines[2]["refusal"]


def test_a_user_without_permission_is_refused_and_the_refusal_is_audited(tmp_path: Path) -> None:
    async def scenario(_: Broker, connect: Connect) -> None:
        admin, bob = await connect(), await connect()
        assert await admin.ask("LOGIN guest guest") == "+guest"
        assert await admin.ask("USER bob secret") == "+True"
        assert await admin.ask("DECLARE / letters") == "+letters"
        assert await bob.ask("LOGIN bob secret") == "+bob"
        for command in ("DECLARE / mine", "BIND / amq.direct letters key", "DELETE / letters", "USER eve secret"):
            assert (await bob.ask(command)).startswith("-403 "), command
        assert await admin.ask("QUEUES /") == "+letters"

    lines = play(tmp_path / "data", scenario)

    assert [(line["event"], line["outcome"]) for line in lines if line["user"] == "bob"] == [
        ("LogIn", "done"),
        ("DeleteQueue", "refused"),
        ("PutUser", "refused"),
    ]
    assert "secret" not in repr(lines)


def test_an_exclusive_queue_goes_with_the_connection_of_another_protocol(tmp_path: Path) -> None:
    async def scenario(_: Broker, connect: Connect) -> None:
        owner, other = await connect(), await connect()
        assert await owner.ask("LOGIN guest guest") == "+guest"
        assert await other.ask("LOGIN guest guest") == "+guest"
        assert await owner.ask("DECLARE / mine exclusive") == "+mine"
        assert (await other.ask("DELETE / mine")).startswith("-400 ")
        await owner.close()
        async with asyncio.timeout(30):
            while await other.ask("QUEUES /") != "+":
                pass  # each question gives the broker its turn

    play(tmp_path / "data", scenario)


def test_a_new_password_counts_for_a_client_that_is_logged_in(tmp_path: Path) -> None:
    async def scenario(_: Broker, connect: Connect) -> None:
        admin, bob = await connect(), await connect()
        assert await admin.ask("LOGIN guest guest") == "+guest"
        await admin.ask("USER bob secret")
        assert await bob.ask("LOGIN bob secret") == "+bob"
        assert (await bob.ask("QUEUES /")).startswith("-403 ")
        await admin.ask("USER bob another")
        assert (await bob.ask("QUEUES /")).startswith("-401 ")
        assert await bob.ask("LOGIN bob another") == "+bob"

    play(tmp_path / "data", scenario)
