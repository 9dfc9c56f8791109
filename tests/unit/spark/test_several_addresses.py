"""A URI with several addresses: the next one is used when one cannot be reached, and errors name all of them."""

from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from penstock.spark.errors import NotFoundError, UnavailableError
from penstock.spark.ranges import OffsetRange
from penstock.spark.wire import Wire
from support.broker import free_ports
from support.fake_flight import FakeFlight
from support.stopping_proxy import StoppingProxy

ROWS = 5_000


def uri_of(*ports: int) -> str:
    where = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"penstock://guest:s3cret@{where}/"


@pytest.fixture
def dead() -> int:
    return free_ports(1)[0]


def test_questions_reads_and_puts_pass_over_an_address_without_a_broker(server: FakeFlight, dead: int) -> None:
    server.declare("events")
    batch = pa.record_batch({"body": [b"1", b"2"]})
    command = {"stream": "events", "producer": "task", "sequence": 1}

    with Wire(uri_of(dead, server.port), 0) as wire:
        assert wire.put(command, batch.schema, [batch])["confirmed"] == 2
    with Wire(uri_of(dead, dead, server.port), 0) as wire:
        assert wire.describe(("events",))["events"].next == 3
    with Wire(uri_of(dead, server.port), 0) as wire:
        (rows,) = wire.read(OffsetRange("events", 1, 3), ["offset", "body"])

    assert rows["body"].to_pylist() == [b"1", b"2"]
    assert (server.puts, server.bodies("events")) == (1, [b"1", b"2"])


def test_an_address_that_goes_away_in_the_middle_of_a_read_loses_and_repeats_no_row(server: FakeFlight) -> None:
    server.declare("events")
    server.publish("events", *([bytes(1_000)] * ROWS))
    proxy = StoppingProxy(server.port)
    offsets: list[int] = []

    with Wire(uri_of(proxy.port, server.port), 0) as wire:
        with proxy:
            proxy.stop_after = 2_500_000
            batches = wire.read(OffsetRange("events", 1, ROWS + 1), ["offset", "body"])
            offsets += next(batches)["offset"].to_pylist()
        for batch in batches:
            offsets += batch["offset"].to_pylist()

    assert proxy.connections == 1
    assert offsets == list(range(1, ROWS + 1))


def test_a_process_does_not_ask_an_address_again_that_failed(
    server: FakeFlight, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.declare("events")
    asked = []

    def unavailable(*_: Any) -> None:
        asked.append(1)
        raise flight.FlightUnavailableError("no broker")

    with FakeFlight() as other:
        monkeypatch.setattr(other, "do_action", unavailable)
        for _ in range(3):
            with Wire(uri_of(other.port, server.port), 0) as wire:
                assert wire.describe(("events",))["events"].next == 1

    assert (len(asked), len(server.asked)) == (1, 3)


def test_an_error_names_every_address_and_no_password(dead: int) -> None:
    with Wire(uri_of(dead, dead), 0) as wire, pytest.raises(UnavailableError) as failed:
        wire.describe(("events",))

    assert f"broker '127.0.0.1:{dead}, 127.0.0.1:{dead}' cannot be reached" in str(failed.value)
    assert "s3cret" not in str(failed.value)


def test_a_refusal_is_not_asked_for_again_at_the_next_address(server: FakeFlight, dead: int) -> None:
    with Wire(uri_of(server.port, dead), 0) as wire, pytest.raises(NotFoundError, match="stream 'nowhere'"):
        wire.describe(("nowhere",))


def test_questions_reads_and_puts_go_to_the_leader_that_a_broker_names(server: FakeFlight) -> None:
    server.declare("events")
    batch = pa.record_batch({"body": [b"1"]})

    with FakeFlight() as given:
        given.leader = f"127.0.0.1:{server.port}"
        with Wire(uri_of(given.port), 0) as wire:
            # Rows without a name, too: the broker that refused them took none.
            assert wire.put({"stream": "events"}, batch.schema, [batch])["confirmed"] == 1
            assert wire.describe(("events",))["events"].next == 2
        with Wire(uri_of(given.port), 0) as wire:
            (rows,) = wire.read(OffsetRange("events", 1, 2), ["offset", "body"])

        assert (rows["body"].to_pylist(), given.refused) == ([b"1"], 1)


def test_a_leader_that_was_named_and_is_not_there_is_left_for_the_given_addresses(
    server: FakeFlight, dead: int
) -> None:
    server.declare("events")

    with FakeFlight() as given:
        given.leader = f"127.0.0.1:{dead}"
        with Wire(uri_of(given.port, server.port), 10) as wire:
            assert wire.describe(("events",))["events"].next == 1


def test_a_uri_may_say_to_stay_with_its_addresses(server: FakeFlight) -> None:
    with FakeFlight() as given:
        given.leader = f"127.0.0.1:{server.port}"
        with Wire(uri_of(given.port) + "?follow=false", 0) as wire, pytest.raises(UnavailableError, match="led by"):
            wire.describe(("events",))

    assert server.asked == []


def test_rows_without_a_name_are_put_at_one_address_only(server: FakeFlight, dead: int) -> None:
    server.declare("events")
    batch = pa.record_batch({"body": [b"1"]})

    with Wire(uri_of(dead, server.port), 0) as wire, pytest.raises(UnavailableError):
        wire.put({"stream": "events"}, batch.schema, [batch])

    assert server.bodies("events") == []
