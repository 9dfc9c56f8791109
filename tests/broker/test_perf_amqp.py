"""`penstock perf amqp` against a broker that it knows nothing of but its AMQP listener."""

import json
import subprocess
from collections.abc import Iterator

import pytest

import penstock
from support import Broker
from support.broker import free_ports, penstock_command


@pytest.fixture(scope="module")
def amqp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, str]]:
    """Return a broker and the URI of its AMQP listener."""
    port = free_ports(1)[0]
    with Broker(tmp_path_factory.mktemp("perf") / "data", "--amqp", f"127.0.0.1:{port}") as broker:
        yield broker, f"amqp://guest:guest@127.0.0.1:{port}/"


def perf(uri: str, *flags: str) -> "subprocess.CompletedProcess[str]":
    command = [penstock_command(), "perf", "amqp", "--uri", uri, "--output", "json", *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(
    "flags",
    [
        ("--in-flight", "0", "--auto-ack"),
        ("--in-flight", "100", "--prefetch", "50"),
        ("--in-flight", "1", "--prefetch", "1", "--persistent"),
        ("--quorum", "--persistent"),
        ("--size", "200000", "--in-flight", "10", "--ack-batch", "1"),
        ("--publishers", "3", "--consumers", "2", "--queues", "2", "--rate", "20000"),
        ("--size", "0"),
    ],
    ids=" ".join,
)
def test_every_message_is_confirmed_and_consumed_and_the_queues_are_deleted(
    amqp: tuple[Broker, str], flags: tuple[str, ...]
) -> None:
    broker, uri = amqp
    result = perf(uri, "--messages", "600", "--pid", str(broker.pid), *flags)

    assert result.returncode == 0, result.stderr + result.stdout
    figures = json.loads(result.stdout)
    has_confirms = "0" not in flags or "--size" in flags
    assert (figures["published"], figures["consumed"]) == (600, 600)
    assert figures["confirmed"] == (600 if has_confirms else 0)
    assert (figures["latency_us"] is None) == (not has_confirms)
    assert (figures["end_to_end_us"] is None) == (flags == ("--size", "0"))
    assert figures["broker_cpu_us"] >= 0
    with penstock.connect(broker.uri()) as connection:
        assert connection.admin.list_queues() == []


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("amqp://guest:wrong@{place}/", "403"),
        ("amqp://guest:guest@{place}/nowhere", "530"),
        ("amqp://guest:guest@127.0.0.1:9/", "cannot connect"),
    ],
)
def test_a_broker_that_refuses_is_one_line_and_a_status(amqp: tuple[Broker, str], address: str, why: str) -> None:
    place = amqp[1].partition("@")[2].removesuffix("/")

    result = perf(address.format(place=place), "--messages", "1")

    assert result.returncode == 1
    assert why in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_process_that_is_not_there_is_named_and_the_queues_are_deleted(amqp: tuple[Broker, str]) -> None:
    result = perf(amqp[1], "--messages", "10", "--pid", str(2**22 + 1))

    assert result.returncode == 1
    assert "process 4194305" in result.stderr
    with penstock.connect(amqp[0].uri()) as connection:
        assert connection.admin.list_queues() == []
