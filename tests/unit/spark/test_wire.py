"""Requests and answers over real Flight with a broker in memory."""

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyarrow import flight

from penstock.spark import puts
from penstock.spark.calls import connector_error
from penstock.spark.errors import NotFoundError, RefusedError, SparkConnectorError, UnavailableError
from penstock.spark.puts import PUT_BYTES_MAX, pieces_of
from penstock.spark.ranges import OffsetRange
from penstock.spark.wire import Wire
from support.fake_flight import FIRST_TIME_MS, FakeFlight


def test_streams_are_described_by_their_partitions(server: FakeFlight) -> None:
    server.declare("clicks", partitions=2)
    server.publish("clicks-0", b"a", b"b", b"c")
    server.retain("clicks-0", 2)
    server.skip("clicks-0")
    server.declare("other")

    with Wire(server.uri) as wire:
        there = wire.describe(("clicks", "other"))

    assert [(each.first, each.next, each.rows, each.bytes) for each in there.values()] == [
        (2, 4 + 2**32, 3, 2),
        (1, 1, 0, 0),
        (1, 1, 0, 0),
    ]
    assert [(each.stream, each.name, each.number) for each in there.values()] == [
        ("clicks", "clicks-0", 0),
        ("clicks", "clicks-1", 1),
        ("other", "other", 0),
    ]
    assert there["clicks-0"].runs.total == 2
    assert len({each.id for each in there.values()}) == 3


def test_a_time_becomes_the_first_offset_stored_then_or_later(server: FakeFlight) -> None:
    server.declare("events")
    server.publish("events", b"a", b"b", b"c")

    with Wire(server.uri) as wire:
        found = [wire.describe(("events",), at)["events"] for at in (0, FIRST_TIME_MS + 1, FIRST_TIME_MS + 9)]

    assert [each.at_timestamp for each in found] == [1, 2, 4]


def test_a_question_waits_for_another_end_or_until_the_time_is_over(server: FakeFlight) -> None:
    server.declare("events")
    server.publish("events", b"a")

    with Wire(server.uri) as wire:
        assert wire.describe(("events",), ends={"events": 2}, wait_ms=30)["events"].next == 2
        threading.Timer(0.1, lambda: server.publish("events", b"b")).start()
        assert wire.describe(("events",), ends={"events": 2}, wait_ms=60_000)["events"].next == 3

    assert [each["wait_ms"] for each in server.asked] == [30, 60_000]


def test_streams_are_listed_by_name(server: FakeFlight) -> None:
    server.declare("clicks", partitions=2)
    server.declare("other")

    with Wire(server.uri) as wire:
        assert wire.list_streams() == ["clicks", "other"]


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


def test_no_part_of_a_put_is_too_large_where_large_rows_stand_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(puts, "PUT_BYTES_MAX", 1_000)
    bodies = [b"small"] * 500 + [bytes(250)] * 9 + [bytes(2_000)] + [b"small"] * 500
    batch = pa.record_batch({"body": bodies})

    pieces = list(pieces_of(batch))

    assert [body for piece in pieces for body in piece["body"].to_pylist()] == bodies
    assert [piece.num_rows for piece in pieces if piece.nbytes > 1_000] == [1]
    assert len(pieces) < 50
    assert list(pieces_of(batch.slice(0, 0))) == []


def test_a_put_that_broke_off_says_so_and_is_completed_by_the_next(server: FakeFlight) -> None:
    server.declare("events")
    batch = pa.record_batch({"body": [b"%d" % number for number in range(100)]})
    halves = [batch.slice(0, 50), batch.slice(50)]
    command = {"stream": "events", "producer": "task", "sequence": 1}
    server.break_put_after = 60

    with Wire(server.uri) as wire:
        with pytest.raises(UnavailableError, match="cannot be reached: the broker died; check 'uri'"):
            wire.put(command, batch.schema, halves)
        wire.put(command, batch.schema, halves)

    assert server.bodies("events") == [b"%d" % number for number in range(100)]


def test_a_put_that_breaks_off_before_its_first_answer_is_repeated(server: FakeFlight) -> None:
    server.declare("events")
    batch = pa.record_batch({"body": [b"%d" % number for number in range(100)]})
    command = {"stream": "events", "producer": "task", "sequence": 1}
    server.break_put_after = 40

    with Wire(server.uri) as wire:
        answer = wire.put(command, batch.schema, [batch])

    assert (answer["confirmed"], server.puts) == (100, 2)
    assert server.bodies("events") == [b"%d" % number for number in range(100)]


def test_a_put_without_a_producer_is_not_repeated(server: FakeFlight) -> None:
    server.declare("events")
    batch = pa.record_batch({"body": [b"1", b"2"]})
    server.break_put_after = 1

    with Wire(server.uri) as wire, pytest.raises(UnavailableError):
        wire.put({"stream": "events"}, batch.schema, [batch])

    assert (server.puts, server.bodies("events")) == (1, [b"1"])


def test_an_error_of_the_rows_themselves_ends_the_put_and_is_raised(server: FakeFlight) -> None:
    server.declare("events")
    batch = pa.record_batch({"body": [b"1"]})

    def failing() -> Iterator[pa.RecordBatch]:
        yield batch
        raise KeyError("of the query")

    with Wire(server.uri) as wire, pytest.raises(KeyError, match="of the query"):
        wire.put({"stream": "events"}, batch.schema, failing())

    # It did not wait for answers until the broker dropped the connection, or for ever.
    assert server.puts_ended == 1


def test_a_put_of_which_the_broker_confirms_other_rows_than_were_sent_is_an_error(server: FakeFlight) -> None:
    server.declare("events")
    server.unconfirmed = 1
    batch = pa.record_batch({"body": [b"1", b"2", b"3"]})

    with Wire(server.uri) as wire, pytest.raises(SparkConnectorError, match="3 rows were sent, and the broker conf"):
        wire.put({"stream": "events"}, batch.schema, [batch])


def test_a_put_into_a_stream_that_was_deleted_meanwhile_is_an_error(server: FakeFlight) -> None:
    server.declare("events")
    server.unroutable = 2
    batch = pa.record_batch({"body": [b"1", b"2", b"3"]})

    with Wire(server.uri) as wire, pytest.raises(NotFoundError, match=r"deleted .*: 2 of 3 rows were not stored"):
        wire.put({"stream": "events"}, batch.schema, [batch])


def test_rows_of_a_put_into_an_exchange_need_not_reach_a_queue(server: FakeFlight) -> None:
    server.declare("events")
    server.unroutable = 1
    batch = pa.record_batch({"body": [b"1"]})

    with Wire(server.uri) as wire:
        assert wire.put({"exchange": "e", "routing_key": "events"}, batch.schema, [batch])["unroutable"] == 1


def test_a_put_without_rows_asks_nothing_of_the_broker(server: FakeFlight) -> None:
    schema = pa.schema([("body", pa.binary())])

    with Wire(server.uri) as wire:
        assert wire.put({"stream": "nowhere"}, schema, [pa.RecordBatch.from_pylist([], schema)]) == {}


def test_an_unknown_stream_is_told_as_the_broker_tells_it(server: FakeFlight) -> None:
    with Wire(server.uri) as wire, pytest.raises(NotFoundError) as refused:
        wire.describe(("nowhere",))

    assert str(refused.value) == "stream 'nowhere' in vhost '/' not found; declare it first or check the name"


def test_a_put_into_an_unknown_stream_speaks_of_the_stream_in_one_sentence(server: FakeFlight) -> None:
    batch = pa.record_batch({"body": [b"1"]})

    with Wire(server.uri) as wire, pytest.raises(NotFoundError) as refused:
        wire.put({"stream": "nowhere"}, batch.schema, [batch])

    assert str(refused.value) == "stream 'nowhere' in vhost '/' not found; declare it first or check the name"
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (
            KeyError(
                "Flight returned not found error, with message: stream 'a' not found. gRPC client debug context: "
                "NOT_FOUND:stream 'a' not found. Client context: OK"
            ),
            NotFoundError,
            "stream 'a' not found",
        ),
        (
            pa.ArrowInvalid("Flight returned invalid argument error, with message: there is no column 'x'. Detail: y"),
            RefusedError,
            "there is no column 'x'",
        ),
        (
            flight.FlightUnavailableError("Flight returned unavailable error, with message: Stream removed"),
            UnavailableError,
            "broker 'here:1' cannot be reached: Stream removed; check 'uri' and whether it runs",
        ),
        (OSError("gRPC returned unknown error, with message: a\nb"), RefusedError, "a\nb"),
        (OSError("gRPC returned out-of-range error, with message: too large"), RefusedError, "too large"),
    ],
)
def test_errors_of_flight_become_the_connector_s_in_one_sentence(
    error: Exception, kind: type[Exception], words: str
) -> None:
    found = connector_error(error, "here:1")

    assert (type(found), str(found)) == (kind, words)
