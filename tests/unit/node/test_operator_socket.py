"""Commands over the socket in a data directory: one request, one answer, and errors for what is not one."""

import asyncio
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.model.errors import NotFoundError, Thing
from penstock.node.in_cluster.operator_socket import REQUEST_BYTES_MAX, OperatorSocket
from penstock.node.operator_calls import SOCKET, ask_broker, short_path


async def echo(request: Mapping[str, Any], user: str) -> Mapping[str, Any]:
    if request.get("broker") == "mq-7":
        raise NotFoundError(Thing("broker", "mq-7"), "check the name")
    return {"asked": request["broker"], "by": user}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory with a longer path than a socket may have."""
    path = tmp_path / ("long" * 30)
    path.mkdir()
    return path


def ask(directory: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        served = OperatorSocket(directory, {"echo": echo})
        await served.start()
        try:
            return await asyncio.to_thread(ask_broker, directory, request, 10.0)
        finally:
            await served.close()

    return asyncio.run(run())


def send(directory: Path, content: bytes) -> bytes:
    async def run() -> bytes:
        served = OperatorSocket(directory, {"echo": echo})
        await served.start()
        try:
            return await asyncio.to_thread(raw, directory, content)
        finally:
            await served.close()

    return asyncio.run(run())


def raw(directory: Path, content: bytes) -> bytes:
    with short_path(directory) as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(10)
        connection.connect(path)
        try:
            connection.sendall(content)
            return connection.recv(65_536)
        except ConnectionError:
            return b""


def test_a_verb_gets_the_request_and_the_user_who_asks(directory: Path) -> None:
    (directory / SOCKET).touch()  # as a process that was killed leaves one

    found = ask(directory, {"verb": "echo", "broker": "mq-1"})

    assert found["asked"] == "mq-1"
    assert found["by"]
    assert not (directory / SOCKET).exists()


def test_errors_are_those_of_the_verb(directory: Path) -> None:
    with pytest.raises(ValueError, match="broker 'mq-7' not found; check the name"):
        ask(directory, {"verb": "echo", "broker": "mq-7"})
    with pytest.raises(ValueError, match="the broker does not know this command"):
        ask(directory, {"verb": "other"})


def test_only_the_owner_may_use_the_file(directory: Path) -> None:
    async def run() -> int:
        served = OperatorSocket(directory, {})
        await served.start()
        mode = (directory / SOCKET).stat().st_mode
        await served.close()
        return mode

    assert asyncio.run(run()) & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"\n", b"[]\n", b"{\n", b'{"verb": []}\n', b"[" * 60_000 + b"\n", b"\xff\n"])
def test_what_is_no_request_gets_an_error(directory: Path, content: bytes) -> None:
    assert "does not know this command" in json.loads(send(directory, content))["error"]


def test_a_request_that_is_too_long_gets_no_answer(directory: Path) -> None:
    assert send(directory, b"x" * (2 * REQUEST_BYTES_MAX) + b"\n") == b""


def test_without_a_broker_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no broker answers for .*; run this where a broker of the cluster runs"):
        ask_broker(tmp_path, {"verb": "echo"}, 1.0)
    assert list(tmp_path.iterdir()) == []
