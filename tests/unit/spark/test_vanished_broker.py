"""Calls to a broker whose host vanishes while its sockets stay open: they end, and go on when it is back."""

import threading
from collections.abc import Iterator
from time import monotonic

import pyarrow as pa
import pytest

from penstock.spark import brokers, wire
from penstock.spark.errors import UnavailableError
from penstock.spark.ranges import OffsetRange
from penstock.spark.wire import Wire
from support.fake_flight import FakeFlight
from support.stopping_proxy import StoppingProxy

ROWS = 5_000
BODY = bytes(1_000)
pytestmark = [pytest.mark.slow]


@pytest.fixture(autouse=True)
def pings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ping every second instead of every ten: the answer may take a second."""
    soon = {"grpc.keepalive_time_ms": 1_000, "grpc.keepalive_timeout_ms": 1_000, "grpc.http2.ping_timeout_ms": 1_000}
    options = [(name, soon.get(name, at)) for name, at in brokers.CHANNEL_OPTIONS]
    monkeypatch.setattr(brokers, "CHANNEL_OPTIONS", options)


@pytest.fixture
def proxy(server: FakeFlight) -> Iterator[StoppingProxy]:
    server.declare("events")
    server.publish("events", *([BODY] * ROWS))
    with StoppingProxy(server.port) as proxy:
        yield proxy


def connected(proxy: StoppingProxy, retry_seconds: float) -> Wire:
    return Wire(f"penstock://guest:guest@127.0.0.1:{proxy.port}/", retry_seconds)


def test_a_read_from_a_host_that_vanished_fails_instead_of_waiting_for_ever(proxy: StoppingProxy) -> None:
    proxy.stop_after = 1_000_000
    began = monotonic()

    with connected(proxy, 0) as there, pytest.raises(UnavailableError, match="cannot be reached"):
        list(there.read(OffsetRange("events", 1, ROWS + 1), ["offset", "body"]))

    assert monotonic() - began < 20


def test_a_read_goes_on_when_the_host_is_back_within_the_time_for_retries(proxy: StoppingProxy) -> None:
    proxy.stop_after = 1_000_000
    back = threading.Timer(6, proxy.go)
    back.start()

    with connected(proxy, 60) as there:
        batches = list(there.read(OffsetRange("events", 1, ROWS + 1), ["offset", "body"]))
    back.join()

    assert proxy.connections > 1
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(1, ROWS + 1))


def test_questions_and_puts_to_a_host_that_vanished_fail_too(proxy: StoppingProxy) -> None:
    batch = pa.record_batch({"body": [BODY] * 100})

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch
        proxy.stop()
        for _ in range(100):
            yield batch

    began = monotonic()
    with connected(proxy, 0) as there:
        with pytest.raises(UnavailableError):
            there.put({"stream": "events"}, batch.schema, rows())
        with pytest.raises(UnavailableError):
            there.describe(("events",))

    assert monotonic() - began < 20


def test_a_broker_that_answers_pings_and_nothing_else_fails_at_the_deadline(
    server: FakeFlight, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "READ_SECONDS_MAX", 1.0)
    server.declare("events")
    server.publish("events", b"1", b"2")
    server.is_silent.set()
    try:
        with Wire(server.uri, 0) as there, pytest.raises(UnavailableError, match="Deadline"):
            list(there.read(OffsetRange("events", 1, 3), ["offset"]))
    finally:
        server.is_silent.clear()


def test_a_consumer_that_takes_longer_than_a_call_may_loses_nothing(
    server: FakeFlight, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "READ_SECONDS_MAX", 1.0)
    server.declare("events")
    server.publish("events", *([BODY] * ROWS))

    with Wire(server.uri, 5) as there:
        offsets: list[int] = []
        for batch in there.read(OffsetRange("events", 1, ROWS + 1), ["offset", "body"]):
            offsets += batch["offset"].to_pylist()
            threading.Event().wait(0.6)

    assert offsets == list(range(1, ROWS + 1))
