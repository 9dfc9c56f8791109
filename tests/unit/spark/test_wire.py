"""Requests and answers over real Flight with a broker in memory."""

import pyarrow as pa
import pytest
from pyarrow import flight

from penstock.spark.ranges import OffsetRange
from penstock.spark.wire import PUT_BYTES_MAX, Wire
from support.fake_flight import FIRST_TIME_MS, FakeFlight


def test_a_stream_is_described_by_its_partitions(server: FakeFlight) -> None:
    server.declare("clicks", partitions=2)
    server.publish("clicks-0", b"a", b"b", b"c")
    server.retain("clicks-0", 2)

    with Wire(server.uri) as wire:
        there = wire.describe("clicks")

    assert (there.first, there.end) == ({"clicks-0": 2, "clicks-1": 1}, {"clicks-0": 4, "clicks-1": 1})
    assert (there.rows, there.bytes) == (2, 2)


def test_a_time_becomes_the_first_offset_stored_then_or_later(server: FakeFlight) -> None:
    server.declare("events")
    server.publish("events", b"a", b"b", b"c")

    with Wire(server.uri) as wire:
        assert wire.offsets_at("events", 0) == {"events": 1}
        assert wire.offsets_at("events", FIRST_TIME_MS + 1) == {"events": 2}
        assert wire.offsets_at("events", FIRST_TIME_MS + 9) == {"events": 4}


def test_a_range_is_read_in_batches_with_the_columns_asked_for(server: FakeFlight) -> None:
    server.declare("events")
    server.publish("events", *(b"%d" % number for number in range(2_500)))

    with Wire(server.uri) as wire:
        batches = list(wire.read(OffsetRange("events", 11, 2_401), ["offset", "body"]))

    table = pa.Table.from_batches(batches)
    assert len(batches) > 1
    assert table.column_names == ["offset", "body"]
    assert table["offset"].to_pylist() == list(range(11, 2_401))
    assert table["body"][0].as_py() == b"10"


def test_a_reading_that_broke_off_goes_on_behind_its_last_row(server: FakeFlight) -> None:
    server.declare("events")
    server.publish("events", *(b"%d" % number for number in range(5_000)))
    server.break_get_after = 2_000

    with Wire(server.uri) as wire:
        batches = list(wire.read(OffsetRange("events", 1, 5_001), ["body", "offset"]))

    assert server.break_get_after is None
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(1, 5_001))


def test_large_batches_are_put_in_parts_and_answers_taken_meanwhile(server: FakeFlight) -> None:
    server.declare("events")
    body = bytes(PUT_BYTES_MAX // 3)
    batch = pa.record_batch({"body": [body] * 8})

    with Wire(server.uri) as wire:
        answer = wire.put({"stream": "events"}, batch.schema, [batch])

    assert answer["confirmed"] == 8
    assert server.bodies("events") == [body] * 8


def test_a_put_that_broke_off_says_so_and_is_completed_by_the_next(server: FakeFlight) -> None:
    server.declare("events")
    batch = pa.record_batch({"body": [b"%d" % number for number in range(100)]})
    command = {"stream": "events", "producer": "task", "sequence": 1}
    server.break_put_after = 40

    with Wire(server.uri) as wire:
        with pytest.raises(flight.FlightUnavailableError):
            wire.put(command, batch.schema, [batch])
        wire.put(command, batch.schema, [batch])

    assert server.bodies("events") == [b"%d" % number for number in range(100)]


def test_an_unknown_stream_is_told_as_the_broker_tells_it(server: FakeFlight) -> None:
    with Wire(server.uri) as wire, pytest.raises(KeyError, match="nowhere"):
        wire.describe("nowhere")
