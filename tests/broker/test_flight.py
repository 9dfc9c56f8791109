"""Streams over Arrow Flight with plain pyarrow: reads, refusals, publishes."""

import base64
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import penstock
from support import Broker, eventually

TIME = pa.timestamp("us", tz="UTC")
TEXT = pa.string()
PROPERTIES = pa.struct(
    [
        ("content_type", TEXT),
        ("content_encoding", TEXT),
        ("delivery_mode", pa.int32()),
        ("priority", pa.int32()),
        ("correlation_id", TEXT),
        ("reply_to", TEXT),
        ("expiration", TEXT),
        ("message_id", TEXT),
        ("timestamp", TIME),
        ("type", TEXT),
        ("user_id", TEXT),
        ("app_id", TEXT),
    ]
)
HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", TEXT, nullable=False), ("value", pa.binary())]), nullable=False)
)
SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIME, nullable=False),
        pa.field("key", pa.binary()),
        pa.field("exchange", TEXT, nullable=False),
        pa.field("routing_key", TEXT, nullable=False),
        pa.field("body", pa.binary(), nullable=False),
        pa.field("properties", PROPERTIES),
        pa.field("headers", HEADERS, nullable=False),
        pa.field("partition", TEXT, nullable=False),
    ]
)
DOCUMENT = Path(__file__).parents[2] / "docs" / "flight.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), flags=re.MULTILINE | re.DOTALL)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Flight:
    """A client with credentials, in a virtual host."""

    def __init__(self, broker: Broker, vhost: str, user: str = "guest:guest") -> None:
        self.client = flight.FlightClient(f"grpc://{broker.address}")
        self.vhost = vhost
        token = base64.b64encode(user.encode()).decode()
        self.options = flight.FlightCallOptions(headers=[(b"authorization", f"Basic {token}".encode())])

    def get(self, partition: str, **more: Any) -> pa.Table:
        ticket = json.dumps({"vhost": self.vhost, "partition": partition, **more})
        table = self.client.do_get(flight.Ticket(ticket), self.options).read_all()
        table.validate(full=True)
        return table

    def describe(self, stream: str, **more: Any) -> flight.FlightInfo:
        command = json.dumps({"vhost": self.vhost, "stream": stream, **more})
        return self.client.get_flight_info(flight.FlightDescriptor.for_command(command), self.options)

    def read(self, info: flight.FlightInfo) -> list[pa.Table]:
        return [self.client.do_get(endpoint.ticket, self.options).read_all() for endpoint in info.endpoints]

    def put(self, table: pa.Table, rows_max: int = 1_000, **command: Any) -> dict[str, int]:
        """Publish a table; return the last result."""
        descriptor = flight.FlightDescriptor.for_command(json.dumps({"vhost": self.vhost, **command}))
        writer, results = self.client.do_put(descriptor, table.schema, self.options)
        with writer:
            writer.write_table(table, rows_max)
            writer.done_writing()
            last: dict[str, int] = {}
            while (result := results.read()) is not None:
                last = json.loads(result.to_pybytes())
        return last


@pytest.fixture
def arrow(broker: Broker, vhost: str) -> Iterator[Flight]:
    found = Flight(broker, vhost)
    yield found
    found.client.close()


@pytest.fixture
def connection(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(vhost)) as connection:
        yield connection


@pytest.fixture
def stream(connection: penstock.Connection) -> penstock.Stream:
    connection.declare_stream("events")
    return connection.stream("events")


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_the_columns_are_those_of_the_contract(arrow: Flight, stream: penstock.Stream) -> None:
    stream.publish(b"one")

    assert arrow.get("events").schema.equals(SCHEMA)
    assert arrow.describe("events").schema.equals(SCHEMA)
    got = arrow.client.get_schema(flight.FlightDescriptor.for_path(arrow.vhost, "events"), arrow.options)
    assert got.schema.equals(SCHEMA)


def test_rows_are_the_messages_that_a_reader_gets(arrow: Flight, stream: penstock.Stream) -> None:
    stream.publish_many(numbered(3_000))
    stream.publish(b"", key=b"\x00\xff")
    messages = list(stream.read("first", until="next"))

    rows = arrow.get("events").to_pylist()

    assert [row["offset"] for row in rows] == [message.offset for message in messages]
    assert [row["body"] for row in rows] == [message.body for message in messages]
    assert [row["key"] for row in rows] == [message.key for message in messages]
    times = [EPOCH + timedelta(milliseconds=message.stored_at_ms) for message in messages]
    assert [row["timestamp"] for row in rows] == times
    assert {(row["exchange"], row["routing_key"], row["partition"]) for row in rows} == {("", "events", "events")}
    assert {row["properties"] is None and row["headers"] == [] for row in rows} == {True}


def test_properties_come_as_a_struct_and_headers_as_names_with_bytes(arrow: Flight, stream: penstock.Stream) -> None:
    stream.publish(b"none")
    properties = penstock.Properties(
        content_type="text/plain", reply_to="r", message_id="m", timestamp=1_700_000_000, type="t", app_id="a"
    )
    headers: dict[str, Any] = {"word": "wörd", "n": 1, "deep": {"list": [True, "x"]}, "raw": b"\xff", "no": None}
    stream.publish(b"all", properties=properties, headers=headers)
    stream.publish(b"none")

    before, row, after = arrow.get("events").to_pylist()

    assert (before["properties"], before["headers"], after["properties"], after["headers"]) == (None, [], None, [])
    assert row["properties"] == {name.name: None for name in PROPERTIES} | {
        "content_type": "text/plain",
        "delivery_mode": 2,
        "reply_to": "r",
        "message_id": "m",
        "timestamp": EPOCH + timedelta(seconds=1_700_000_000),
        "type": "t",
        "app_id": "a",
    }
    found = {header["key"]: header["value"] for header in row["headers"]}
    assert (found["word"], found["n"], found["raw"], found["no"]) == ("wörd".encode(), b"1", b"\xff", None)
    assert json.loads(found["deep"]) == {"list": [True, "x"]}


def test_a_ticket_names_a_range_and_columns_in_their_order(arrow: Flight, stream: penstock.Stream) -> None:
    stream.publish_many(numbered(100))
    first = stream.offsets()[0].first

    part = arrow.get("events", **{"from": first + 10, "to": first + 13, "columns": ["body", "offset"]})

    assert part.column_names == ["body", "offset"]
    assert part.to_pydict() == {"body": [b"10", b"11", b"12"], "offset": [first + 10, first + 11, first + 12]}
    assert arrow.get("events", **{"from": first + 98, "to": first + 5_000}).num_rows == 2
    assert arrow.get("events", **{"from": first + 5_000}).num_rows == 0


def test_a_ticket_may_ask_for_rows_with_a_key_a_routing_key_or_a_header(arrow: Flight, stream: penstock.Stream) -> None:
    for number in range(1, 7):
        key = b"hall" if number > 3 else b"kitchen"
        stream.publish(b"%d" % number, key=key, headers={"unit": "C" if number % 2 else "F", "n": number})

    def found(**wanted: Any) -> list[int]:
        offsets: list[int] = arrow.get("events", columns=["offset"], **wanted)["offset"].to_pylist()
        return offsets

    assert found(key_is="hall") == [4, 5, 6]
    assert found(routing_key_is="events") == [1, 2, 3, 4, 5, 6]
    assert found(routing_key_is="other") == []
    assert found(header_is={"name": "unit", "value": "C"}) == [1, 3, 5]
    assert found(header_is={"name": "n", "value": "3"}) == [3]
    assert found(header_is={"name": "unit", "value": "C"}, key_is="hall") == [5]
    assert found(key_is="hall", **{"from": 5, "to": 6}) == [5]


def test_a_read_reports_how_far_it_is_and_counts_the_rows_that_it_leaves_out(
    arrow: Flight, stream: penstock.Stream
) -> None:
    stream.publish_many(numbered(70_000))
    stream.publish(b"last", key=b"k")

    def reports(**wanted: Any) -> list[tuple[int, int, int]]:
        ticket = flight.Ticket(
            json.dumps({"vhost": arrow.vhost, "partition": "events", "columns": ["offset"], **wanted})
        )
        found = []
        for chunk in arrow.client.do_get(ticket, arrow.options):
            report = json.loads(chunk.app_metadata.to_pybytes())
            found.append((report["next"], report["seen"], chunk.data.num_rows))
        return found

    assert reports() == [(32_769, 32_768, 32_768), (65_537, 32_768, 32_768), (70_002, 4_465, 4_465)]
    assert reports(key_is="k") == [(70_002, 70_001, 1)]
    assert reports(key_is="none", **{"from": 10, "to": 20}) == [(20, 10, 0)]


def test_a_read_of_many_rows_that_nobody_asked_for_reports_on_its_way(arrow: Flight, stream: penstock.Stream) -> None:
    for _ in range(3):
        stream.publish_many([b"x"] * 100_000)

    ticket = flight.Ticket(json.dumps({"vhost": arrow.vhost, "partition": "events", "key_is": "none"}))
    reports = [json.loads(chunk.app_metadata.to_pybytes()) for chunk in arrow.client.do_get(ticket, arrow.options)]

    assert [report["seen"] for report in reports] == [262_144, 37_856]
    assert reports[-1]["next"] == 300_001


def test_endpoints_cover_every_partition_without_gap_or_overlap(arrow: Flight, connection: penstock.Connection) -> None:
    connection.declare_stream("clicks", partitions=3)
    clicks = connection.stream("clicks")
    for number in range(500):
        clicks.publish(b"%d" % number, key=b"%d" % number)

    info = arrow.describe("clicks", endpoints_min=8)
    tables = arrow.read(info)

    assert len(info.endpoints) >= 8
    assert info.total_records == 500
    rows = pa.concat_tables(tables)
    assert sorted(rows["body"].to_pylist()) == sorted(numbered(500))
    assert set(rows["partition"].to_pylist()) == {"clicks-0", "clicks-1", "clicks-2"}
    assert len(arrow.describe("clicks").endpoints) == 3


def test_a_range_begins_at_a_time_and_ends_where_the_stream_did(arrow: Flight, stream: penstock.Stream) -> None:
    stream.publish_many(numbered(50))
    middle = list(stream.read("first", until="next"))[20]
    at_time = stream.offsets(at=datetime.fromtimestamp(middle.stored_at_ms / 1_000, UTC))[0].at_timestamp
    info = arrow.describe("events", from_timestamp_ms=middle.stored_at_ms)
    stream.publish(b"later")

    (table,) = arrow.read(info)

    assert table["offset"][0].as_py() == at_time
    assert table["body"][-1].as_py() == b"49"
    assert arrow.describe("events", from_timestamp_ms=1 << 45).endpoints[0].ticket.ticket
    assert arrow.read(arrow.describe("events", from_timestamp_ms=1 << 45))[0].num_rows == 0


def test_streams_are_listed_with_what_they_hold(arrow: Flight, connection: penstock.Connection) -> None:
    connection.declare_stream("events")
    connection.declare_stream("clicks", partitions=2)
    connection.declare_queue("jobs")
    connection.stream("events").publish_many(numbered(7))

    criteria = json.dumps({"vhost": arrow.vhost}).encode()
    infos = {info.descriptor.path[-1]: info for info in arrow.client.list_flights(criteria, arrow.options)}

    assert {name: len(info.endpoints) for name, info in infos.items()} == {b"clicks": 2, b"events": 1}
    assert infos[b"events"].total_records == 7
    assert arrow.read(infos[b"events"])[0].num_rows == 7


def test_batches_are_cut_by_bytes_and_a_large_message_goes_whole(arrow: Flight, stream: penstock.Stream) -> None:
    bodies = [bytes([number]) * 700_000 for number in range(10)] + [bytes(6_000_000), b"small"]
    stream.publish_many(bodies)

    ticket = json.dumps({"vhost": arrow.vhost, "partition": "events", "columns": ["body"]})
    batches = [chunk.data for chunk in arrow.client.do_get(flight.Ticket(ticket), arrow.options)]

    assert [body for batch in batches for body in batch["body"].to_pylist()] == bodies
    assert [batch.num_rows for batch in batches] == [3, 3, 3, 2, 1]


def _refused(call: Callable[[], object], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        call()


def test_what_cannot_be_is_refused_by_name(
    arrow: Flight, stream: penstock.Stream, connection: penstock.Connection
) -> None:
    connection.declare_queue("jobs")
    stream.publish(b"one")

    _refused(lambda: arrow.get("jobs"), pa.ArrowInvalid, "not a stream; consume")
    _refused(lambda: arrow.get("nowhere"), KeyError, "nowhere")
    _refused(lambda: arrow.get("events", columns=["offsets"]), pa.ArrowInvalid, "no column 'offsets'")
    _refused(lambda: arrow.get("events", columns=[]), pa.ArrowInvalid, "at least one column")
    _refused(lambda: arrow.get("events", until=7), pa.ArrowInvalid, "until")
    _refused(lambda: arrow.describe("nowhere"), KeyError, "nowhere")
    _refused(lambda: arrow.describe("events", endpoints_min=1_000_000), pa.ArrowInvalid, "endpoints_min")
    _refused(lambda: list(arrow.client.do_action("drop", arrow.options)), NotImplementedError, "DoAction")


def test_nobody_reads_or_writes_without_permission(
    broker: Broker, arrow: Flight, stream: penstock.Stream, connection: penstock.Connection
) -> None:
    stream.publish(b"one")
    connection.admin.put_user("flight-reader", "secret")
    connection.admin.set_permission("flight-reader", arrow.vhost, configure="", write="", read="other")
    stranger = Flight(broker, arrow.vhost, "flight-reader:secret")
    liar = Flight(broker, arrow.vhost, "guest:wrong")

    with pytest.raises(flight.FlightUnauthorizedError):
        stranger.get("events")
    with pytest.raises(flight.FlightUnauthorizedError):
        stranger.put(pa.table({"body": [b"x"]}), stream="events")
    for call in (liar.get, liar.describe):
        with pytest.raises(flight.FlightUnauthenticatedError):
            call("events")
    with pytest.raises(flight.FlightUnauthenticatedError):
        liar.put(pa.table({"body": [b"x"]}), stream="events")
    assert stream.info().message_count == 1


def test_a_handshake_gives_a_token_for_the_calls_that_follow(
    broker: Broker, arrow: Flight, stream: penstock.Stream
) -> None:
    stream.publish(b"one")

    token = arrow.client.authenticate_basic_token("guest", "guest")
    arrow.options = flight.FlightCallOptions(headers=[token])

    assert arrow.get("events").num_rows == 1
    with pytest.raises(flight.FlightUnauthenticatedError):
        arrow.client.authenticate_basic_token("guest", "wrong")


def test_rows_are_published_with_all_they_have(arrow: Flight, stream: penstock.Stream) -> None:
    table = pa.table(
        {
            "body": pa.array(["text", "more"], pa.large_string()),
            "key": pa.array([b"k", None], pa.binary()),
            "content_type": pa.array([None, "text/plain"]),
            "message_id": pa.array(["3", None]),
            "headers": pa.array([[("a", "1")], []], pa.map_(TEXT, TEXT)),
            "timestamp": pa.array([EPOCH + timedelta(days=1), None], TIME),
        }
    )

    assert arrow.put(table, stream="events", durability="disk") == {"confirmed": 2, "unroutable": 0}

    first, second = stream.read("first", until="next")
    assert (first.body, first.key, first.properties.message_id, first.headers) == (b"text", b"k", "3", {"a": "1"})
    assert (second.body, second.key, second.properties.content_type) == (b"more", None, "text/plain")
    assert first.properties.timestamp == 86_400


def test_what_was_read_can_be_published_again(
    arrow: Flight, stream: penstock.Stream, connection: penstock.Connection
) -> None:
    connection.declare_stream("copies")
    properties = penstock.Properties(message_id="7", reply_to="r")
    stream.publish(b"with", properties=properties, headers={"n": "x"}, key=b"k")
    stream.publish(b"without")

    columns = ["body", "key", "properties", "headers"]
    arrow.put(arrow.get("events", columns=columns), stream="copies")

    assert arrow.get("copies", columns=columns).equals(arrow.get("events", columns=columns))


HEADER = pa.struct([("key", TEXT), ("value", pa.binary())])
REPEATED = [{"key": "a", "value": b"\xff\x00"}, {"key": "b", "value": None}, {"key": "a", "value": "ö".encode()}]


@pytest.mark.parametrize("kind", [pa.list_(HEADER), pa.large_list(HEADER)])
def test_headers_come_back_repeated_in_order_with_their_bytes(
    arrow: Flight, stream: penstock.Stream, kind: pa.DataType
) -> None:
    headers = pa.array([REPEATED, [], None, [{"key": "", "value": b""}]], kind)

    arrow.put(pa.table({"body": [b"1", b"2", b"3", b"4"], "headers": headers}), stream="events")

    rows = arrow.get("events", columns=["headers"]).to_pylist()
    assert [row["headers"] for row in rows] == [REPEATED, [], [], [{"key": "", "value": b""}]]
    # A reader has a value for each name: text as text, other bytes as bytes.
    first, *_, last = stream.read("first", until="next")
    assert (first.headers, last.headers) == ({"a": "ö", "b": None}, {"": ""})


def test_bytes_of_a_header_are_bytes_for_readers_unless_they_are_text(arrow: Flight, stream: penstock.Stream) -> None:
    headers = pa.array([[("raw", b"\xff"), ("text", b"x")]], pa.map_(TEXT, pa.binary()))

    arrow.put(pa.table({"body": [b"1"], "headers": headers}), stream="events")

    (message,) = stream.read("first", until="next")
    assert message.headers == {"raw": b"\xff", "text": "x"}


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        (pa.array(["a"]), "a list of structs of 'key'"),
        (pa.array([["a"]]), "a list of structs of 'key'"),
        (pa.array([[{"key": "a", "value": 1}]]), "a list of structs of 'key'"),
        (pa.array([[{"key": None, "value": b"x"}]], pa.list_(HEADER)), "row 0 has a header without a name"),
        (pa.array([[None]], pa.list_(HEADER)), "row 0 has a header without a name"),
        (pa.array([[{"key": "n" * 256, "value": b"x"}]], pa.list_(HEADER)), "the name of a header"),
    ],
)
def test_what_is_no_header_is_refused(arrow: Flight, stream: penstock.Stream, headers: pa.Array, text: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match=text):
        arrow.put(pa.table({"body": [b"1"], "headers": headers}), stream="events")

    assert stream.offsets()[0].message_count == 0


def test_a_row_with_a_property_that_has_no_effect_is_refused(arrow: Flight, stream: penstock.Stream) -> None:
    for name, value in (("priority", pa.array([None, 3], pa.uint8())), ("expiration", pa.array([None, "100"]))):
        with pytest.raises(NotImplementedError, match=f"row 1: the property '{name}' is not supported yet"):
            arrow.put(pa.table({"body": [b"x", b"y"], name: value}), stream="events")


def test_rows_go_to_partitions_by_key_and_to_queues_by_routing_key(
    arrow: Flight, connection: penstock.Connection
) -> None:
    connection.declare_stream("clicks", partitions=4)
    connection.declare_queue("jobs")
    keys = numbered(200)

    arrow.put(pa.table({"body": keys, "key": keys}), stream="clicks")
    to_queues = pa.table({"body": [b"a", b"b"], "routing_key": ["jobs", "nowhere"]})
    assert arrow.put(to_queues, exchange="") == {"confirmed": 2, "unroutable": 1}

    for number, partition in enumerate(connection.stream("clicks").info().partitions):
        rows = arrow.get(partition, columns=["body", "key"]).to_pylist()
        assert rows, number
        assert all(row["body"] == row["key"] for row in rows)
    got = connection.get("jobs", auto_ack=True)
    assert got is not None
    assert got.body == b"a"


def test_a_producer_that_repeats_itself_stores_nothing_twice(arrow: Flight, stream: penstock.Stream) -> None:
    table = pa.table({"body": numbered(5_000)})
    named: dict[str, Any] = {"stream": "events", "producer": "loader"}

    assert arrow.put(table.slice(0, 3_000), sequence=1, **named)["sequence"] == 3_000
    result = arrow.put(table, sequence=1, **named)

    assert (result["confirmed"], result["sequence"]) == (5_000, 5_000)
    assert arrow.get("events")["body"].to_pylist() == numbered(5_000)


def put_batch(arrow: Flight, batch: int, *bodies: bytes, **more: Any) -> dict[str, int]:
    command = {"stream": "events", "producer": "job/0", "batch": batch, **more}
    return arrow.put(pa.table({"body": pa.array(bodies, pa.binary())}), **command)


def test_a_batch_of_a_producer_is_stored_once_and_comes_again_as_it_was(arrow: Flight, stream: penstock.Stream) -> None:
    assert put_batch(arrow, 0, b"a", b"b") == {"confirmed": 2, "unroutable": 0, "repeated": 0}
    put_batch(arrow, 1, b"c")

    assert put_batch(arrow, 0, b"a", b"b") == {"confirmed": 2, "unroutable": 0, "repeated": 2}
    assert put_batch(arrow, 1, b"c", b"d") == {"confirmed": 2, "unroutable": 0, "repeated": 1}
    for rows in ([b"b", b"a"], [b"a"], [b"a", b"b", b"c"]):
        with pytest.raises(pa.ArrowException, match="batch 0 of producer 'job/0' is not the one that was stored"):
            put_batch(arrow, 0, *rows)

    assert [message.body for message in stream.read("first", until="next")] == [b"a", b"b", b"c", b"d"]


def test_a_batch_that_comes_again_without_its_refused_row_lets_the_next_one_in(
    arrow: Flight, stream: penstock.Stream
) -> None:
    """It held back all later batches until the broker was started again."""
    put_batch(arrow, 0, b"a")
    table = pa.table({"body": [b"b", b"c"], "routing_key": ["events", "x" * 300]})
    with pytest.raises(pa.ArrowException, match="255"):
        arrow.put(table, rows_max=1, producer="job/0", batch=1, exchange="")
    with pytest.raises(pa.ArrowException, match="was refused and did not come again"):
        put_batch(arrow, 2, b"d")

    put_batch(arrow, 1, b"b")
    put_batch(arrow, 2, b"d")

    assert [message.body for message in stream.read("first", until="next")] == [b"a", b"b", b"d"]


def test_a_batch_without_rows_is_checked_and_makes_no_name(
    arrow: Flight, stream: penstock.Stream, connection: penstock.Connection
) -> None:
    nothing = pa.schema([("body", pa.binary())])

    def say(producer: str, batch: int) -> None:
        command = {"vhost": arrow.vhost, "stream": "events", "producer": producer, "batch": batch, "is_empty": True}
        descriptor = flight.FlightDescriptor.for_command(json.dumps(command))
        writer, results = arrow.client.do_put(descriptor, nothing, arrow.options)
        writer.done_writing()
        while results.read() is not None:
            pass
        writer.close()

    put_batch(arrow, 0, b"a")
    say("job/1", 0)
    say("job/0", 1)

    with pytest.raises(pa.ArrowException, match="1 of its rows are stored, and 0 came now"):
        say("job/0", 0)
    assert [one.name for one in connection.admin.list_producers()] == ["job/0"]


def test_a_put_that_cannot_be_is_refused_and_stores_nothing(arrow: Flight, stream: penstock.Stream) -> None:
    def put(table: pa.Table, **command: Any) -> Callable[[], object]:
        return lambda: arrow.put(table, **command)

    good = pa.table({"body": [b"x"]})
    _refused(put(pa.table({"text": ["x"]}), stream="events"), pa.ArrowInvalid, "'text' cannot be published")
    _refused(put(pa.table({"key": [b"x"]}), stream="events"), pa.ArrowInvalid, "no column 'body'")
    _refused(put(pa.table({"body": [1]}), stream="events"), pa.ArrowInvalid, "binary or utf8")
    _refused(put(pa.table({"body": [b"x", None]}), stream="events"), pa.ArrowInvalid, "row 1 has no body")
    _refused(put(good, exchange="nowhere"), KeyError, "nowhere")
    _refused(put(good, stream="events", sequence=1), pa.ArrowInvalid, "producer")
    _refused(put(good, stream="events", durability="tape"), pa.ArrowInvalid, "tape")
    dictionary = pa.table({"body": pa.array(["x"]).dictionary_encode()})
    _refused(put(dictionary, stream="events"), pa.ArrowInvalid, r"'body' is Dictionary.*cast it")
    assert stream.info().message_count == 0


def anonymous_bytes(broker: Broker) -> int:
    """Return the memory of the broker's process without mapped files."""
    lines = Path(f"/proc/{broker.pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1_024


@pytest.mark.slow
def test_clients_that_do_not_read_hold_two_batches_each(broker: Broker, arrow: Flight, stream: penstock.Stream) -> None:
    stream.publish_many([bytes(100_000)] * 600)
    arrow.get("events", columns=["body"])
    before = anonymous_bytes(broker)
    ticket = flight.Ticket(json.dumps({"vhost": arrow.vhost, "partition": "events"}))

    readers = [arrow.client.do_get(ticket, arrow.options) for _ in range(16)]
    firsts = [reader.read_chunk().data.num_rows for reader in readers]
    held = max(anonymous_bytes(broker) for _ in range(100) if stream.info())

    # 60 MB each without flow control; the rest is kept by sockets and allocators.
    assert held - before < 16 * 12_000_000
    assert set(firsts) == {21}
    for reader in readers:
        reader.cancel()
    eventually(lambda: stream.info().reader_count, 0)


@pytest.mark.slow
def test_rows_survive_a_restart_and_a_corrupt_one_is_left_out(tmp_path: Path) -> None:
    bodies = [b"message %04d" % number + bytes(200) for number in range(300)]
    broker = Broker(tmp_path / "data", shards=1)
    with broker, penstock.connect(broker.uri()) as connection:
        connection.declare_stream("events")
        connection.stream("events").publish_many(bodies)
        broker.stop()
    for path in broker.data_dir.glob("*/msgs.*[0-9]"):
        content = bytearray(path.read_bytes())
        at = content.find(bodies[123])
        if at >= 0:
            content[at + 20] ^= 0xFF
            path.write_bytes(content)

    with broker, penstock.connect(broker.uri()) as connection:
        arrow = Flight(broker, "/")
        got = arrow.get("events", columns=["body"])["body"].to_pylist()

        assert got == [body for number, body in enumerate(bodies) if number != 123]
        eventually(lambda: len(connection.admin.status().corruption), 1)
        arrow.client.close()
        broker.stop()


@pytest.mark.slow
def test_the_examples_of_the_document_print_rows(broker: Broker) -> None:
    printed = []
    for example in EXAMPLES:
        command = [sys.executable, "-c", example.replace("127.0.0.1:5680", broker.address)]
        printed.append(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)

    tables, frames, described = printed
    assert '"confirmed": 3' in tables.replace("'", '"')
    assert "b'21.0'" in tables
    assert "shop" in frames
    assert "[('home', 2), ('shop', 1)]" in frames
    assert described == "2 [[1, 3]]\n"
