"""Clients that did not log in: the broker closes their connections, and they hold few streams until then."""

import base64
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import penstock
from hostile.wire import DATA, END_STREAM, HEADERS, Wire, message
from penstock.v1 import admin_pb2
from support import Broker, eventually

LOG_IN_SECONDS = 2
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
STATUS = "/penstock.v1.AdminService/GetStatus"
FAILURES_MAX = 10


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Return a broker that gives clients a short time to log in."""
    folder = tmp_path_factory.mktemp("impatient")
    settings = folder / "penstock.toml"
    settings.write_text(f"first_request_seconds = {LOG_IN_SECONDS}\n")
    with Broker(folder / "data", "--config", str(settings)) as started:
        yield started


@pytest.mark.parametrize("path", ["", CHECK, WATCH, REFLECTION])
def test_a_connection_without_a_log_in_is_closed(impatient: Broker, path: str) -> None:
    with Wire(impatient.grpc) as wire:
        if path:
            wire.request(path, message(b""), flags=0 if path == REFLECTION else END_STREAM)
        assert wire.is_hung_up()


def test_a_failed_log_in_does_not_keep_a_connection_open(impatient: Broker) -> None:
    with Wire(impatient.grpc, basic("guest", "wrong")) as wire:
        assert wire.answer(wire.request(STATUS, message(b""))).startswith("UNAUTHENTICATED")
        assert wire.is_hung_up()


@pytest.mark.parametrize("password", ["guest", "secret"])
def test_a_connection_stays_after_a_log_in_also_when_the_call_is_refused(impatient: Broker, password: str) -> None:
    user = "guest" if password == "guest" else "anna"
    with penstock.connect(impatient.uri()) as root:
        root.admin.put_user("anna", "secret")
    request = admin_pb2.ListQueuesRequest(vhost="/").SerializeToString()
    with Wire(impatient.grpc, basic(user, password)) as wire:
        first = wire.answer(wire.request("/penstock.v1.AdminService/ListQueues", message(request)))
        assert first.startswith("OK" if user == "guest" else "PERMISSION_DENIED")
        wire.request(WATCH, message(b""))

        assert not wire.is_hung_up(2 * LOG_IN_SECONDS)
        assert wire.answer(wire.request(STATUS, message(b""))).startswith("OK")


def test_a_connection_without_a_log_in_has_few_public_streams(broker: Broker) -> None:
    with Wire(broker.grpc, basic("guest", "guest")) as wire:
        wire._authorization = ""
        streams = [wire.request(WATCH, message(b"")) for _ in range(20)]
        answers: dict[int, str] = {}
        for found in wire.frames(5):
            if found.kind == HEADERS:
                wire._decoder.decode(found.payload)  # the next answer's headers refer to these
            if found.stream in streams and found.stream not in answers:
                if found.kind == HEADERS and found.flags & END_STREAM:
                    answers[found.stream] = "refused"
                elif found.kind == DATA:
                    answers[found.stream] = "watches"
            if len(answers) == len(streams):
                break
        assert list(answers.values()).count("watches") == 4
        assert list(answers.values()).count("refused") == 16

        wire._authorization = basic("guest", "guest")
        assert wire.answer(wire.request(STATUS, message(b""))).startswith("OK")
        known = wire.request(WATCH, message(b""))
        kinds = (found.kind for found in wire.frames(5) if found.stream == known and found.kind == DATA)
        assert next(kinds, None) == DATA


def test_a_connection_is_closed_after_log_ins_that_fail_one_after_another(broker: Broker) -> None:
    with Wire(broker.grpc, basic("guest", "guest")) as wire:
        assert wire.answer(wire.request(STATUS, message(b""))).startswith("OK")
        before = refused_count(broker)
        wire._authorization = basic("guest", "wrong")
        answers = [wire.answer(wire.request(STATUS, message(b""))) for _ in range(FAILURES_MAX)]
        assert all(answer.startswith("UNAUTHENTICATED") for answer in answers)
        assert wire.is_hung_up()
    assert refused_count(broker) - before == FAILURES_MAX


def refused_count(broker: Broker) -> float:
    """Return the number of refused log-ins that `/metrics` shows."""
    (line,) = (line for line in broker.scrape().splitlines() if line.startswith("penstock_log_ins_refused_total"))
    return float(line.split()[-1])


def test_one_address_takes_three_quarters_of_the_connections_before_it_logs_in(tmp_path: Path) -> None:
    settings = tmp_path / "penstock.toml"
    settings.write_text("connections_max = 40\n")
    with Broker(tmp_path / "data", "--config", str(settings)) as broker, ExitStack() as wires:
        known = [wires.enter_context(Wire(broker.grpc, basic("guest", "guest"))) for _ in range(8)]
        for wire in known:
            assert wire.answer(wire.request(STATUS, message(b""))).startswith("OK")
        unknown = [wires.enter_context(Wire(broker.grpc)) for _ in range(30)]

        with Wire(broker.grpc, greets=False) as refused:
            assert refused.answer(1).startswith("GOAWAY ENHANCE_YOUR_CALM 30 connections from this address")
        unknown.pop().socket.close()
        eventually(lambda: "\npenstock_connections 37.0\n" in broker.scrape(), True)
        another = wires.enter_context(Wire(broker.grpc, basic("guest", "guest")))
        assert another.answer(another.request(STATUS, message(b""))).startswith("OK")
