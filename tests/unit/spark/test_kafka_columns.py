"""Kafka's columns: names, types and constants of a read, and the rows that are published for them."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.columns import ddl_of, needed, own_columns, shown
from penstock.spark.errors import OptionError, SchemaError
from penstock.spark.kafka_columns import own_batches, own_published, partition_number
from penstock.spark.options import ReadOptions, parse_read_options, parse_write_options

KAFKA = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def options(**more: str) -> ReadOptions:
    return parse_read_options({"stream": "clicks", "schema": "kafka", **more})


def test_columns_are_exactly_those_of_kafkas_source() -> None:
    assert ddl_of(options()) == KAFKA
    assert ddl_of(options(includeHeaders="true")) == f"{KAFKA}, headers ARRAY<STRUCT<key STRING, value BINARY>>"
    assert ddl_of(options(columns="offset,value")) == "offset BIGINT, value BINARY"
    with pytest.raises(SchemaError, match="no column 'body'; valid are: key, value, topic"):
        ddl_of(options(columns="body"))


def test_a_decoded_body_stands_beside_the_value() -> None:
    decoded = options(parsed="json", parsedSchema="id BIGINT")

    assert ddl_of(decoded) == f"{KAFKA}, parsed STRUCT<id BIGINT>"
    own = own_columns(pa.schema([("parsed", pa.struct([("id", pa.int64())])), ("topic", pa.string())]), decoded)
    assert needed(own.names, decoded) == ("body", "offset")


def test_the_broker_sends_only_the_columns_that_kafkas_are_made_of() -> None:
    def asked(*names: str) -> tuple[str, ...]:
        return needed(own_columns(pa.schema([(name, pa.binary()) for name in names]), options()).names, options())

    assert asked("topic", "partition", "timestampType") == ("offset",)
    assert asked("value", "key", "headers") == ("body", "key", "headers", "offset")
    with pytest.raises(SchemaError, match="no column 'body' with schema=kafka"):
        asked("body")
    with pytest.raises(SchemaError, match="needs the option 'parsed'"):
        asked("parsed")


def test_rows_have_the_streams_name_and_the_partitions_number() -> None:
    schema = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("timestampType", pa.int32())])
    wanted = pa.schema([("value", pa.binary()), *schema])
    batch = pa.record_batch({"body": [b"a", b"b"], "offset": [1, 2]})

    rows = shown(batch, wanted, options(), "clicks", "clicks-3")

    assert rows.schema.equals(wanted)
    one = {"topic": "clicks", "partition": 3, "timestampType": 1}
    assert rows.to_pylist() == [{"value": b"a", **one}, {"value": b"b", **one}]


@given(st.text(min_size=1), st.integers(0, 999))
def test_a_partition_has_its_number_in_its_stream(stream: str, number: int) -> None:
    assert partition_number(stream, f"{stream}-{number}") == number
    assert partition_number(stream, stream) == 0


def test_a_partition_that_is_read_as_a_stream_has_number_0() -> None:
    assert partition_number("clicks-2", "clicks-2") == 0


def test_rows_in_kafkas_columns_are_published_as_a_streams_own() -> None:
    batch = pa.record_batch(
        {
            "topic": ["a", "a"],
            "key": ["k", None],
            "value": pa.array(["x", None], pa.string()),
            "headers": pa.array([[{"key": "h", "value": b"1"}], None], HEADERS),
            "offset": [7, 8],
        }
    )

    (rows,) = own_batches([batch])

    assert rows.to_pylist() == [
        {"key": "k", "body": "x", "headers": [{"key": "h", "value": b"1"}]},
        {"key": None, "body": "", "headers": None},
    ]
    assert own_published(batch.schema).names == rows.schema.names


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (("key",), "there is no column 'value'"),
        (("value", "partition"), "column 'partition' cannot choose a partition"),
        (("value", "body"), "'body' is not one of Kafka's sink"),
        (("value", "routing_key"), "'routing_key' is not one of Kafka's sink"),
    ],
)
def test_columns_that_kafkas_sink_does_not_have_are_refused(columns: tuple[str, ...], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        own_published(pa.schema([(name, pa.binary()) for name in columns]))


def test_the_stream_is_named_by_an_option_and_never_by_a_column() -> None:
    assert parse_write_options({"topic": "clicks", "schema": "kafka"}).stream == "clicks"
    assert parse_write_options({"topic": "clicks", "stream": "clicks"}).stream == "clicks"
    with pytest.raises(OptionError, match="a column 'topic' cannot choose it for each row"):
        parse_write_options({"schema": "kafka"})
    with pytest.raises(OptionError, match="only one of 'stream' and 'topic'"):
        parse_write_options({"topic": "a", "stream": "b"})


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("kafka.bootstrap.servers", "name the broker with 'uri'"),
        ("kafka.sasl.jaas.config", "'user' with 'password'"),
        ("kafka.linger.ms", "settings of Kafka's clients"),
        ("groupIdPrefix", "'group' shows its progress"),
        ("fetchOffset.numRetries", "'retrySeconds'"),
    ],
)
def test_options_of_kafka_without_a_meaning_here_are_refused_with_advice_and_without_their_value(
    option: str, words: str
) -> None:
    with pytest.raises(OptionError, match=words) as refused:
        options(**{option: "s3cret"})

    assert f"no option '{option}'" in str(refused.value)
    assert "s3cret" not in str(refused.value)
