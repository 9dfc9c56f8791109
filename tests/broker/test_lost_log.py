"""A broker whose log cannot be written, because its reader is gone or its disk is full, works on and stops in order."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

import penstock
from support.broker import free_ports, penstock_command
from support.waiting import eventually


@contextmanager
def log_without_reader() -> Iterator[int]:
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@contextmanager
def log_on_a_full_disk() -> Iterator[int]:
    with Path("/dev/full").open("wb") as full:
        yield full.fileno()


@pytest.mark.slow
@pytest.mark.parametrize("make_log", [log_without_reader, log_on_a_full_disk])
def test_a_broker_that_cannot_write_its_log_serves_clients_and_stops(
    tmp_path: Path, make_log: Callable[[], AbstractContextManager[int]]
) -> None:
    (port,) = free_ports(1)
    command = [
        *(penstock_command(), "serve", "--data-dir", str(tmp_path / "data")),
        *("--grpc", f"127.0.0.1:{port}", "--metrics", "off", "--amqp", "off", "--http", "off"),
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    with make_log() as log, subprocess.Popen(command, stderr=log, env=environment) as broker:
        try:
            eventually(lambda: answers(port), True, 60)
            with penstock.connect(f"penstock://guest:guest@127.0.0.1:{port}/") as connection:
                connection.declare_queue("jobs")
                connection.publish(b"x", routing_key="jobs")
                connection.delete_queue("jobs")
            broker.terminate()
            assert broker.wait(60) == 0
        finally:
            broker.kill()

    assert (tmp_path / "data" / "clean").exists()


def answers(port: int) -> bool:
    try:
        penstock.connect(f"penstock://guest:guest@127.0.0.1:{port}/").close()
    except penstock.ConnectionLostError:
        return False
    return True
