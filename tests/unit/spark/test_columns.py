"""Columns: requests to the broker, schemas for Spark, and publishing."""

import pyarrow as pa
import pytest

from penstock.spark.columns import check_published, conformed, ddl_of, needed, published_schema
from penstock.spark.errors import SchemaError
from penstock.spark.options import ReadOptions, parse_read_options, parse_write_options
from support.fake_flight import SCHEMA


def options(**more: str) -> ReadOptions:
    return parse_read_options({"stream": "events", **more})


def test_headers_and_properties_are_columns_only_when_asked_for() -> None:
    plain = ddl_of(options())
    full = ddl_of(options(includeHeaders="true"))

    assert plain.startswith("partition STRING, offset BIGINT, timestamp TIMESTAMP, key BINARY")
    assert "headers" not in plain
    assert "headers ARRAY<STRUCT<key STRING, value BINARY>>" in full
    assert "properties STRUCT<content_type STRING" in full


def test_columns_are_those_named_in_their_order() -> None:
    assert ddl_of(options(columns="body, offset")) == "body BINARY, offset BIGINT"
    with pytest.raises(SchemaError, match="no column 'bodies'"):
        ddl_of(options(columns="bodies"))


def test_a_decoded_body_is_a_column_of_its_own() -> None:
    ddl = ddl_of(options(parsed="json", parsedSchema="id BIGINT, name STRING", columns="offset"))

    assert ddl == "offset BIGINT, value STRUCT<id BIGINT, name STRING>"


def test_the_broker_is_asked_for_what_is_shown_and_decoded() -> None:
    assert needed(["offset", "body"], options()) == ("offset", "body")
    assert needed(["body"], options()) == ("body", "offset")
    assert needed(["offset"], options(keyIs="a", routingKeyIs="b")) == ("offset",)
    assert needed([], options()) == ("offset",)
    parsed = options(parsed="json", parsedSchema="id BIGINT", deadLetterStream="bad")
    assert needed(["value"], parsed) == ("body", "key", "offset")
    with pytest.raises(SchemaError, match="no column 'text'"):
        needed(["text"], options())


def test_a_batch_gets_the_schema_that_spark_wants() -> None:
    batch = pa.Table.from_pylist(
        [
            {
                "offset": 1,
                "timestamp": 0,
                "key": None,
                "exchange": "",
                "routing_key": "r",
                "body": b"x",
                "properties": {"priority": 3},
                "headers": [{"key": "a", "value": b"1"}],
                "partition": "p",
            }
        ],
        SCHEMA,
    ).to_batches()[0]
    spark = pa.schema(
        [
            ("headers", pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))),
            ("body", pa.binary()),
            ("offset", pa.int64()),
        ]
    )

    rows = conformed(batch, spark)

    assert rows.schema.equals(spark)
    assert rows.to_pylist() == [{"headers": [{"key": "a", "value": b"1"}], "body": b"x", "offset": 1}]
    with pytest.raises(SchemaError, match="'body'"):
        conformed(batch, pa.schema([("body", pa.map_(pa.string(), pa.string()))]))


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"body": pa.binary(), "amount": pa.int64()}, "'amount' cannot be published"),
        ({"key": pa.binary()}, "no column 'body'"),
        ({"value": pa.binary()}, "set schema=kafka for Kafka's columns"),
        ({"body": pa.int64()}, "cast it to STRING"),
        ({"body": pa.string(), "headers": pa.string()}, "ARRAY<STRUCT<key STRING, value BINARY>>"),
        ({"body": pa.string(), "headers": pa.list_(pa.struct([("key", pa.string())]))}, "ARRAY<STRUCT"),
        ({"body": pa.string(), "headers": pa.list_(pa.string())}, "ARRAY<STRUCT"),
        ({"body": pa.string(), "headers": pa.map_(pa.string(), pa.int32())}, "ARRAY<STRUCT"),
        ({"body": pa.string(), "properties": pa.string()}, "must be a struct"),
    ],
)
def test_what_cannot_be_published_is_refused_before_anything_is(columns: dict[str, pa.DataType], text: str) -> None:
    with pytest.raises(SchemaError, match=text):
        published_schema(pa.schema(list(columns.items())))


def test_times_are_sent_in_utc() -> None:
    sent = published_schema(pa.schema([("body", pa.string()), ("timestamp", pa.timestamp("us", "Asia/Tokyo"))]))

    assert sent.field("timestamp").type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize("schema", ["penstock", "kafka"])
def test_a_column_that_comes_twice_is_refused(schema: str) -> None:
    """It was a KeyError of each task; Spark lets the result of a join be written."""
    body = "value" if schema == "kafka" else "body"
    options = parse_write_options({"stream": "a", "schema": schema})

    for name in (body, "key"):
        with pytest.raises(SchemaError, match=f"there are 2 columns '{name}'"):
            check_published(pa.schema([(body, pa.binary()), ("key", pa.binary()), (name, pa.binary())]), options)


def test_a_routing_key_does_not_take_rows_past_the_stream() -> None:
    """A copy with `routing_key` as it was read went back into the stream that was read, and was confirmed."""
    schema = pa.schema([("body", pa.binary()), ("routing_key", pa.string())])

    check_published(schema, parse_write_options({"exchange": "amq.topic"}))
    with pytest.raises(SchemaError, match="'routing_key' belongs to 'exchange'"):
        check_published(schema, parse_write_options({"stream": "copy"}))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_texts_of_bodies_and_keys_are_sent_as_the_bytes_that_they_are(kind: pa.DataType) -> None:
    """Texts of Spark may be no UTF-8, and the broker refused them."""
    size = 8 if pa.types.is_large_string(kind) else 4
    ends = b"".join(end.to_bytes(size, "little") for end in (0, 2, 5))
    texts = pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(ends), pa.py_buffer(b"\xff\xfeabc")])
    rows = pa.RecordBatch.from_arrays([texts, texts], names=["body", "key"])

    sent = conformed(rows, published_schema(rows.schema))

    assert sent.to_pylist() == [{"body": each, "key": each} for each in (b"\xff\xfe", b"abc")]
    assert sent["body"].buffers()[2].address == texts.buffers()[2].address


def test_a_value_that_does_not_fit_is_told_apart_from_a_type() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([b"\xff"])], names=["body"])

    with pytest.raises(SchemaError, match=r"'body' has a value that cannot be read as string: .*; read it as binary"):
        conformed(rows, pa.schema([("body", pa.string())]))
