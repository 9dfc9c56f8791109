"""Decoding: columns from good bodies, a reason for each bad one, and one dead letter each."""

import json
from typing import cast

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from penstock.spark.decoding import DeadLetters, Decoder
from penstock.spark.errors import NotFoundError
from penstock.spark.options import Decoding
from penstock.spark.puts import Answers
from penstock.spark.ranges import OffsetRange
from penstock.spark.wire import Wire
from support.fake_flight import FakeFlight

SCHEMA = pa.schema([("offset", pa.int64()), ("value", pa.struct([("id", pa.int64()), ("name", pa.string())]))])
CORRUPT = pa.struct([("id", pa.int64()), ("_corrupt_record", pa.string())])
GOOD = b'{"id": 1, "name": "a"}'


def decode(server: FakeFlight, bodies: list[bytes], start: int, dead: str) -> list[int]:
    """Return the offsets of the decoded rows."""
    batch = pa.record_batch(
        {
            "offset": pa.array(range(start, start + len(bodies)), pa.int64()),
            "key": pa.array([b"k"] * len(bodies)),
            "body": pa.array(bodies, pa.binary()),
        }
    )
    decoding = Decoding("json", "id BIGINT", dead)
    wanted = OffsetRange("events", start, start + len(bodies))
    with Wire(server.uri) as wire, Decoder(wire, decoding, wanted, "query/events/0of1") as decoder:
        offsets: list[int] = decoder.decode(batch, SCHEMA)["offset"].to_pylist()
        return offsets


def test_bad_records_go_to_the_dead_letter_stream_with_reason_and_place(server: FakeFlight) -> None:
    server.declare("bad")

    assert decode(server, [GOOD, b"{", GOOD, b"x"], 10, "bad") == [10, 12]

    assert server.bodies("bad") == [b"{", b"x"]
    row = server.rows["bad"][2]
    assert row["key"] == b"k"
    assert row["headers"] == [
        {"key": "reason", "value": b"the body is not a JSON object"},
        {"key": "partition", "value": b"events"},
        {"key": "offset", "value": b"13"},
    ]


def test_a_range_that_is_read_again_stores_its_bad_records_once(server: FakeFlight) -> None:
    server.declare("bad")

    for start, bodies in ((10, [b"1", GOOD, b"2"]), (10, [b"1", GOOD, b"2"]), (13, [b"3", b"4", b"5"])):
        decode(server, bodies, start, "bad")

    assert server.bodies("bad") == [b"1", b"2", b"3", b"4", b"5"]


def decode_range(server: FakeFlight, offsets: range, *, is_lease: bool = False) -> None:
    """Decode bad records of the range from 1 to 100, of which these offsets are there; each has its offset as body."""
    bodies = [b"%d" % offset for offset in offsets]
    batch = pa.record_batch({"offset": offsets, "key": [None] * len(offsets), "body": bodies})
    wanted = OffsetRange("events", 1, 100)
    decoding = Decoding("json", "id BIGINT", "bad")
    with Wire(server.uri) as wire, Decoder(wire, decoding, wanted, "query/0", is_lease=is_lease) as decoder:
        decoder.decode(batch, SCHEMA)


def test_no_bad_record_is_taken_for_one_that_retention_removed_between_two_attempts(server: FakeFlight) -> None:
    server.declare("bad")
    # The first attempt stores three of six and dies.
    decode_range(server, range(1, 4))

    decode_range(server, range(3, 7))

    assert server.bodies("bad") == [b"1", b"2", b"3", b"4", b"5", b"6"]


def test_bad_records_of_a_lease_are_counted_from_its_start_whatever_their_offsets_are(server: FakeFlight) -> None:
    server.declare("bad")

    decode_range(server, range(500, 503), is_lease=True)

    assert server.producers == {"dead-letters/query/0": 4}


def test_without_a_dead_letter_stream_a_bad_record_is_a_null(server: FakeFlight) -> None:
    assert decode(server, [GOOD, b"x"], 1, "") == [1, 2]
    assert server.puts == 0


@pytest.mark.parametrize("bodies", [[b'{"id": 1}', b"", b"x", b"", b'{"id": 2}'], [b"", b""], [b""]])
@pytest.mark.parametrize("decoding", [Decoding("json", "id BIGINT", "bad"), Decoding("json", "id BIGINT")])
def test_a_tombstone_is_null_and_no_bad_record(server: FakeFlight, bodies: list[bytes], decoding: Decoding) -> None:
    server.declare("bad")
    offsets = list(range(1, len(bodies) + 1))
    batch = pa.record_batch({"offset": offsets, "key": [b"k"] * len(bodies), "body": bodies})

    with Wire(server.uri) as wire, Decoder(wire, decoding, OffsetRange("events", 1, 9), "query/0") as decoder:
        rows = decoder.decode(batch, SCHEMA)

    ids = {b'{"id": 1}': 1, b'{"id": 2}': 2, b"": None, b"x": None}
    is_bad = [body == b"x" and decoding.dead_letter_stream != "" for body in bodies]
    wanted = [(at, ids[body]) for at, body, bad in zip(offsets, bodies, is_bad, strict=True) if not bad]
    got = [value and value["id"] for value in rows["value"].to_pylist()]
    assert list(zip(rows["offset"].to_pylist(), got, strict=True)) == wanted
    assert server.bodies("bad") == [b"x"] * sum(is_bad)


def test_a_bad_record_is_kept_with_its_text_where_the_schema_has_a_column_for_it(server: FakeFlight) -> None:
    bodies = [b'{"id": 1, "_corrupt_record": "x"}', b"", b"{\xff", b'{"id": "two"}']
    batch = pa.record_batch({"offset": range(1, 5), "key": [b"k"] * 4, "body": bodies})
    schema = pa.schema([("offset", pa.int64()), ("value", CORRUPT)])

    with Wire(server.uri) as wire, Decoder(wire, Decoding("json", "-"), OffsetRange("events", 1, 5), "q/0") as decoder:
        rows = decoder.decode(batch, schema)

    assert rows["value"].type == CORRUPT
    assert rows["value"].to_pylist() == [
        {"id": 1, "_corrupt_record": None},
        None,
        {"id": None, "_corrupt_record": "{\ufffd"},
        {"id": None, "_corrupt_record": '{"id": "two"}'},
    ]


def test_an_empty_protobuf_message_has_the_defaults_of_its_fields(server: FakeFlight) -> None:
    decoding = Decoding("protobuf", "", "", PROTOBUF.SerializeToString(), "R")
    batch = pa.record_batch({"offset": [1], "key": [b"k"], "body": [b""]})

    with Wire(server.uri) as wire, Decoder(wire, decoding, OffsetRange("events", 1, 2), "query/0") as decoder:
        (value,) = decoder.decode(batch, SCHEMA)["value"].to_pylist()

    assert value["id"] == 0


def test_bad_records_can_be_left_out_without_publishing_them(server: FakeFlight) -> None:
    decoding = Decoding("json", "id BIGINT", drops=True)
    batch = pa.record_batch({"offset": [1, 2], "key": [b"k"] * 2, "body": [b"x", b'{"id": 2}']})

    with Wire(server.uri) as wire, Decoder(wire, decoding, OffsetRange("events", 1, 3), "query/0") as decoder:
        assert decoder.decode(batch, SCHEMA)["offset"].to_pylist() == [2]

    assert server.puts == 0


def test_a_dead_letter_stream_that_is_not_there_fails_the_task(server: FakeFlight) -> None:
    with pytest.raises(NotFoundError, match="stream 'nowhere'"):
        decode(server, [b"x"] * 10, 1, "nowhere")


AVRO = json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]})
PROTOBUF = descriptor_pb2.FileDescriptorSet()
PROTOBUF.file.add(name="r.proto", syntax="proto3").message_type.add(name="R").field.add(
    name="id", number=1, type=descriptor_pb2.FieldDescriptorProto.TYPE_INT64, label=1
)


@pytest.mark.parametrize(
    ("decoding", "good", "reason"),
    [
        (Decoding("avro", AVRO, "bad"), b"\x0e", "not of this Avro schema"),
        (Decoding("protobuf", "", "bad", PROTOBUF.SerializeToString(), "R"), b"\x08\x07", "is not a message 'R'"),
    ],
)
def test_other_formats_have_their_dead_letters_once_as_well(
    server: FakeFlight, decoding: Decoding, good: bytes, reason: str
) -> None:
    server.declare("bad")
    batch = pa.record_batch(
        {"offset": pa.array([5, 6, 7]), "key": pa.array([b"k"] * 3), "body": pa.array([good, b"\xff", good])}
    )
    schema = pa.schema([("offset", pa.int64()), ("value", pa.struct([("id", pa.int64())]))])

    for _ in range(2):
        with Wire(server.uri) as wire, Decoder(wire, decoding, OffsetRange("events", 5, 8), "query/0") as decoder:
            rows = decoder.decode(batch, schema)
            assert rows["offset"].to_pylist() == [5, 7]
            assert [value["id"] for value in rows["value"].to_pylist()] == [7, 7]

    (bad,) = server.rows["bad"].values()
    assert bad["body"] == b"\xff"
    assert reason in bad["headers"][0]["value"].decode()


ROW_FIELDS = [("body", pa.binary()), ("key", pa.binary()), ("offset", pa.int64())]


class Broken:
    """A wire, and the results of a call, that fail with an unexpected error."""

    def put(self, *_: object) -> None:
        raise RuntimeError("a bug")

    def read(self) -> None:
        raise RuntimeError("a bug")


def test_an_unexpected_error_of_publishing_bad_records_fails_the_task() -> None:
    letters = DeadLetters(cast(Wire, Broken()), "bad", OffsetRange("s", 1, 100), "origin")
    row = pa.record_batch({"body": [b"x"], "key": [None], "offset": [1]}, pa.schema(ROW_FIELDS))

    for _ in range(10):
        letters.put(row, ["not JSON"])

    with pytest.raises(RuntimeError, match="a bug"):
        letters.close()


def test_an_unexpected_error_of_reading_answers_fails_the_task() -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        Answers(Broken()).last()
