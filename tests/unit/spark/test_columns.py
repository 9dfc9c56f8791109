"""Columns: requests to the broker, schemas for Spark, and publishing."""

import pyarrow as pa
import pytest

from penstock.spark.columns import conformed, ddl_of, needed, published_schema
from penstock.spark.errors import SchemaError
from penstock.spark.options import ReadOptions, parse_read_options
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
