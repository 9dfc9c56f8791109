"""Protobuf bodies: every type has its column or is refused, and no bytes stop a read."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    json_format,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.bodies import BodyError, decoded_bodies
from penstock.spark.errors import SchemaError
from penstock.spark.protobuf import protobuf_decoder, protobuf_fields

FieldType = descriptor_pb2.FieldDescriptorProto
SCALARS = ("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32")
SCALARS_TOO = ("sfixed32", "sfixed64", "sint32", "sint64")


def field(message: Any, name: str, kind: str, **more: Any) -> Any:
    number = len(message.field) + 1
    return message.field.add(
        name=name, number=number, type=FieldType.Type.Value(f"TYPE_{kind.upper()}"), **{"label": 1, **more}
    )


def order_file() -> Any:
    """Return protoc's output for a message with a field of every kind."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    for known in ("timestamp", "duration", "wrappers"):
        file.dependency.append(f"google/protobuf/{known}.proto")
    file.enum_type.add(name="State").value.add(name="NEW", number=0)
    file.enum_type[0].value.add(name="SENT", number=1)
    place = file.message_type.add(name="Place")
    field(place, "town", "string")
    order = file.message_type.add(name="Order")
    for kind in (*SCALARS, *SCALARS_TOO):
        field(order, f"a_{kind}", kind)
    field(order, "state", "enum", type_name=".shop.State")
    field(order, "place", "message", type_name=".shop.Place")
    field(order, "tags", "string", label=3)
    field(order, "places", "message", label=3, type_name=".shop.Place")
    field(order, "at", "message", type_name=".google.protobuf.Timestamp")
    field(order, "took", "message", type_name=".google.protobuf.Duration")
    field(order, "discount", "message", type_name=".google.protobuf.DoubleValue")
    field(order, "sizes", "message", label=3, type_name=".shop.Order.SizesEntry")
    entry = order.nested_type.add(name="SizesEntry")
    entry.options.map_entry = True
    field(entry, "key", "string")
    field(entry, "value", "message", type_name=".shop.Place")
    order.oneof_decl.add(name="_note")
    field(order, "note", "string", proto3_optional=True, oneof_index=0)
    node = file.message_type.add(name="Node")
    field(node, "next", "message", type_name=".shop.Node")
    file.message_type.add(name="Empty")
    return file


def as_set(*files: Any) -> bytes:
    known = (timestamp_pb2, duration_pb2, wrappers_pb2)
    found = descriptor_pb2.FileDescriptorSet()
    for each in known:
        each.DESCRIPTOR.CopyToProto(found.file.add())
    found.file.extend(files)
    return found.SerializeToString()


DESCRIPTORS = as_set(order_file())
PLACE = pa.struct([("town", pa.string())])
KIND = pa.struct(
    [
        *(("a_double", pa.float64()), ("a_float", pa.float32()), ("a_int64", pa.int64())),
        *(("a_uint64", pa.decimal128(20, 0)), ("a_int32", pa.int32()), ("a_fixed64", pa.decimal128(20, 0))),
        *(("a_fixed32", pa.int64()), ("a_bool", pa.bool_()), ("a_string", pa.string()), ("a_bytes", pa.binary())),
        *(("a_uint32", pa.int64()), ("a_sfixed32", pa.int32()), ("a_sfixed64", pa.int64()), ("a_sint32", pa.int32())),
        *(("a_sint64", pa.int64()), ("state", pa.string()), ("place", PLACE), ("tags", pa.list_(pa.string()))),
        *(("places", pa.list_(PLACE)), ("at", pa.timestamp("us", "UTC")), ("took", pa.duration("us"))),
        *(("discount", pa.float64()), ("sizes", pa.map_(pa.string(), PLACE)), ("note", pa.string())),
    ]
)
DDL = (
    "`a_double`: DOUBLE, `a_float`: FLOAT, `a_int64`: BIGINT, `a_uint64`: DECIMAL(20, 0), `a_int32`: INT, "
    "`a_fixed64`: DECIMAL(20, 0), `a_fixed32`: BIGINT, `a_bool`: BOOLEAN, `a_string`: STRING, `a_bytes`: BINARY, "
    "`a_uint32`: BIGINT, `a_sfixed32`: INT, `a_sfixed64`: BIGINT, `a_sint32`: INT, `a_sint64`: BIGINT, "
    "`state`: STRING, `place`: STRUCT<`town`: STRING>, `tags`: ARRAY<STRING>, "
    "`places`: ARRAY<STRUCT<`town`: STRING>>, `at`: TIMESTAMP, `took`: INTERVAL DAY TO SECOND, `discount`: DOUBLE, "
    "`sizes`: MAP<STRING, STRUCT<`town`: STRING>>, `note`: STRING"
)


def message(name: str, text: str) -> bytes:
    """Return a message from its JSON."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS).file:
        pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()
    return json_format.Parse(text, made).SerializeToString()


FULL = message(
    "shop.Order",
    '{"aDouble": 0.5, "aUint64": "18446744073709551615", "aUint32": 4294967295, "aBytes": "/w==", "state": "SENT", '
    '"place": {"town": "Ulm"}, "tags": ["a", "b"], "places": [{"town": "x"}, {}], "at": "2026-01-31T12:00:00.000007Z", '
    '"took": "1.5s", "discount": 0.25, "sizes": {"s": {"town": "y"}}, "note": ""}',
)


def decode() -> Callable[[bytes], dict[str, Any]]:
    return protobuf_decoder(DESCRIPTORS, "shop.Order")


def test_every_type_has_its_column() -> None:
    assert protobuf_fields(DESCRIPTORS, "shop.Order") == DDL


def test_every_type_is_decoded_and_what_was_not_set_is_null_where_that_can_be_told() -> None:
    values, reasons = decoded_bodies(pa.array([FULL, b""]), KIND, decode())

    assert reasons == {}
    values.validate(full=True)
    full, empty = values.to_pylist()
    assert (full["a_uint64"], full["a_uint32"], full["a_bytes"]) == (Decimal(2**64 - 1), 2**32 - 1, b"\xff")
    assert (full["state"], full["place"], full["tags"]) == ("SENT", {"town": "Ulm"}, ["a", "b"])
    assert (full["places"], full["sizes"]) == ([{"town": "x"}, {"town": ""}], [("s", {"town": "y"})])
    assert full["at"] == datetime(2026, 1, 31, 12, 0, 0, 7, tzinfo=UTC)
    assert (full["took"], full["discount"], full["note"]) == (timedelta(seconds=1.5), 0.25, "")
    assert (empty["a_int64"], empty["state"], empty["tags"], empty["sizes"]) == (0, "NEW", [], [])
    assert [empty[name] for name in ("place", "at", "took", "discount", "note")] == [None] * 5


def test_a_number_that_the_enum_does_not_know_stays_a_number() -> None:
    # Field 16, a varint of 9.
    assert decode()(b"\x80\x01\x09")["state"] == "9"


@pytest.mark.parametrize(
    ("descriptors", "name", "text"),
    [
        (b"\xff\xff", "shop.Order", "not a descriptor set"),
        (DESCRIPTORS, "shop.Gone", "no message 'shop.Gone'.*shop.Order"),
        (DESCRIPTORS, "shop.Node", "'shop.Node' is recursive"),
        (DESCRIPTORS, "shop.Empty", "has no fields"),
    ],
)
def test_what_has_no_column_is_refused(descriptors: bytes, name: str, text: str) -> None:
    with pytest.raises(SchemaError, match=text):
        protobuf_fields(descriptors, name)


def test_descriptors_without_their_imports_are_refused_with_the_way_out() -> None:
    alone = descriptor_pb2.FileDescriptorSet(file=[order_file()]).SerializeToString()

    with pytest.raises(SchemaError, match="--include_imports"):
        protobuf_fields(alone, "shop.Order")


def test_a_message_of_any_json_is_refused() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="a", syntax="proto3")
    file.dependency.append("google/protobuf/struct.proto")
    field(file.message_type.add(name="A"), "json", "message", type_name=".google.protobuf.Struct")
    known = descriptor_pb2.FileDescriptorProto()
    struct_pb2.DESCRIPTOR.CopyToProto(known)

    with pytest.raises(SchemaError, match="is recursive"):
        protobuf_fields(as_set(known, file), "a.A")


def test_a_message_that_lacks_what_it_requires_is_a_bad_body() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="old.proto", package="old")
    field(file.message_type.add(name="Old"), "id", "int64", label=2)

    with pytest.raises(BodyError, match=r"required fields of 'old.Old': id"):
        protobuf_decoder(as_set(file), "old.Old")(b"")


def test_a_bad_body_has_its_reason_and_the_good_ones_their_places() -> None:
    values, reasons = decoded_bodies(pa.array([FULL, b"\xff", FULL]), KIND, decode())

    assert list(reasons) == [1]
    assert "is not a message 'shop.Order'" in reasons[1]
    assert [value is None for value in values.to_pylist()] == [False, True, False]


@given(st.binary(max_size=300))
def test_whatever_the_bytes_there_is_a_value_or_a_reason(body: bytes) -> None:
    values, reasons = decoded_bodies(pa.array([body]), KIND, decode())

    assert (values[0].as_py() is None) == (0 in reasons)
