"""Avro bodies: every type has its column or is refused, and no bytes stop a read."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.avro import avro_decoder, avro_fields, without_other_logic
from penstock.spark.bodies import BodyError, decoded_bodies
from penstock.spark.errors import SchemaError

PLACE = {"type": "record", "name": "Place", "fields": [{"name": "town", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int"},
        {"name": "paid", "type": "boolean"},
        {"name": "weight", "type": "float"},
        {"name": "rate", "type": "double"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "raw", "type": "bytes"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "exact", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sizes", "type": {"type": "map", "values": ["null", "int"]}},
        {"name": "from", "type": PLACE},
        {"name": "to", "type": ["null", "Place"]},
        {"name": "any", "type": ["null", "int", "long"]},
        {"name": "nested", "type": {"type": "array", "items": {"type": "map", "values": "Place"}}},
    ],
}
DDL = (
    "`id`: BIGINT, `count`: INT, `paid`: BOOLEAN, `weight`: FLOAT, `rate`: DOUBLE, `name`: STRING, `raw`: BINARY, "
    "`hash`: BINARY, `state`: STRING, `price`: DECIMAL(9, 2), `day`: DATE, `at`: TIMESTAMP, `exact`: TIMESTAMP, "
    "`local`: TIMESTAMP_NTZ, `clock`: INT, `uuid`: STRING, `tags`: ARRAY<STRING>, `sizes`: MAP<STRING, INT>, "
    "`from`: STRUCT<`town`: STRING>, `to`: STRUCT<`town`: STRING>, `any`: BIGINT, "
    "`nested`: ARRAY<MAP<STRING, STRUCT<`town`: STRING>>>"
)
TOWN = pa.struct([("town", pa.string())])
KIND = pa.struct(
    [
        *(("id", pa.int64()), ("count", pa.int32()), ("paid", pa.bool_()), ("weight", pa.float32())),
        *(("rate", pa.float64()), ("name", pa.string()), ("raw", pa.binary()), ("hash", pa.binary())),
        *(("state", pa.string()), ("price", pa.decimal128(9, 2)), ("day", pa.date32())),
        *(("at", pa.timestamp("us", "UTC")), ("exact", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us"))),
        *(("clock", pa.int32()), ("uuid", pa.string()), ("tags", pa.list_(pa.string()))),
        *(("sizes", pa.map_(pa.string(), pa.int32())), ("from", TOWN), ("to", TOWN), ("any", pa.int64())),
        ("nested", pa.list_(pa.map_(pa.string(), TOWN))),
    ]
)
VALUE = {
    "id": 2**40,
    "count": -1,
    "paid": True,
    "weight": 0.5,
    "rate": 0.25,
    "name": "é",
    "raw": b"\xff",
    "hash": b"ab",
    "state": "SENT",
    "price": Decimal("12.50"),
    "day": date(2026, 1, 31),
    "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "exact": datetime(2026, 1, 31, 12, 0, 0, 7, tzinfo=UTC),
    "local": datetime(2026, 1, 31, 12, tzinfo=UTC).replace(tzinfo=None),
    "clock": 60_000,
    "uuid": "6a2f41a3-c54c-fce8-32d2-0324e1c32e22",
    "tags": ["a", "b"],
    "sizes": {"x": 1, "y": None},
    "from": {"town": "Ulm"},
    "to": None,
    "any": 5,
    "nested": [{"a": {"town": "Bonn"}}],
}


def written(schema: Any, value: Any) -> bytes:
    stream = BytesIO()
    plain = json.loads(json.dumps(schema), object_hook=without_other_logic)
    fastavro.schemaless_writer(stream, plain, value)
    return stream.getvalue()


def of_field(kind: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]})


def test_every_type_has_its_column() -> None:
    assert avro_fields(json.dumps(ORDER)) == DDL


def test_every_type_is_decoded() -> None:
    body = written(ORDER, VALUE)

    values, reasons = decoded_bodies(pa.array([body, body]), KIND, avro_decoder(json.dumps(ORDER)))

    assert reasons == {}
    values.validate(full=True)
    (got, _) = values.to_pylist()
    assert got == {**VALUE, "sizes": [("x", 1), ("y", None)], "nested": [[("a", {"town": "Bonn"})]]}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("{", "not an Avro schema"),
        ('"string"', "must be a record"),
        ('{"type": "record", "name": "R", "fields": []}', "has no fields"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Gone"}]}', "not an Avro schema"),
        (of_field("null"), "'a' is 'null'"),
        (of_field(["int", "string"]), "'a' is a union of several types"),
        (of_field(["null", "int", PLACE]), "'a' is a union of several types"),
        (of_field(["null", "R"]), "a recursive type"),
        (of_field({"type": "fixed", "name": "F", "size": 0}), "size 0"),
        (of_field({"type": "array", "items": "null"}), "'a' is 'null'"),
        (of_field({"type": "bytes", "logicalType": "decimal", "precision": 39}), "39 digits"),
    ],
)
def test_what_has_no_column_is_refused(schema: str, text: str) -> None:
    with pytest.raises(SchemaError, match=text):
        avro_fields(schema)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda body: b"", "is not of this Avro schema"),
        (lambda body: body[:-1], "is not of this Avro schema"),
        (lambda body: body + b"xyz", "has 3 extra bytes"),
        (lambda body: b"\xff" * 40, "is not of this Avro schema"),
    ],
)
def test_a_bad_body_has_its_reason_and_the_good_ones_their_places(change: Any, reason: str) -> None:
    good = written(ORDER, VALUE)

    values, reasons = decoded_bodies(pa.array([good, change(good), good]), KIND, avro_decoder(json.dumps(ORDER)))

    assert list(reasons) == [1]
    assert reason in reasons[1]
    assert [value is None for value in values.to_pylist()] == [False, True, False]


def test_a_value_that_its_column_has_no_place_for_is_a_bad_body() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    bodies = [written(schema, {"a": each}) for each in (1, 2**40, 2)]

    values, reasons = decoded_bodies(pa.array(bodies), pa.struct([("a", pa.int32())]), avro_decoder(json.dumps(schema)))

    assert values.to_pylist() == [{"a": 1}, None, {"a": 2}]
    assert "does not fit" in reasons[1]


@given(st.binary(max_size=300))
def test_whatever_the_bytes_there_is_a_value_or_a_reason(body: bytes) -> None:
    values, reasons = decoded_bodies(pa.array([body]), KIND, avro_decoder(json.dumps(ORDER)))

    assert (values[0].as_py() is None) == (0 in reasons)


def test_a_few_bytes_that_promise_many_items_are_a_bad_body() -> None:
    """A count of 2^40 items without any content."""
    schema = of_field({"type": "array", "items": "long"})
    with pytest.raises(BodyError):
        avro_decoder(schema)(b"\x80\x80\x80\x80\x80\x80\x01")
