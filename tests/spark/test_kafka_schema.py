"""`schema=kafka`: a job that read and wrote Kafka finds its columns, with exactly their types."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import penstock
from support import Broker

# As in Spark's class KafkaRecordToRowConverter.
KAFKA = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]
HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
pytestmark = [pytest.mark.slow]


@pytest.fixture
def clicks(connection: penstock.Connection) -> Iterator[str]:
    name = f"clicks-{uuid4().hex[:8]}"
    connection.declare_stream(name, partitions=2)
    yield name
    connection.delete_stream(name)


def test_columns_and_types_are_those_of_kafkas_source(spark: SparkSession, broker: Broker, clicks: str) -> None:
    reader = spark.read.format("penstock").options(uri=broker.uri(), stream=clicks, schema="kafka")

    assert reader.load().schema == StructType(KAFKA)
    assert reader.option("includeHeaders", "true").load().schema == StructType(
        [*KAFKA, StructField("headers", HEADERS)]
    )


def test_a_job_of_kafka_runs_with_another_format_and_other_options(
    spark: SparkSession, broker: Broker, connection: penstock.Connection, clicks: str, tmp_path: Path
) -> None:
    copy = f"copy-{clicks}"
    connection.declare_stream(copy)
    stream = connection.stream(clicks)
    for number in range(6):
        stream.publish(b'{"id": %d}' % number, key=b"k%d" % number, headers={"n": str(number), "raw": b"\xff"})

    rows = (
        spark.readStream.format("penstock")
        .options(uri=broker.uri(), stream=clicks, schema="kafka", startingOffsets="earliest", includeHeaders="true")
        .load()
    )
    parsed = rows.select(
        "key", "headers", "topic", "timestampType", from_json(col("value").cast("string"), "id BIGINT").alias("found")
    )
    query = (
        parsed.where("found.id > 0")
        .selectExpr("topic", "key", "CAST(found.id AS STRING) AS value", "headers", "timestampType")
        .writeStream.format("penstock")
        .options(uri=broker.uri(), topic=copy, schema="kafka", checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(100)

    messages = list(connection.stream(copy).read("first", until="next"))
    assert sorted((message.key, message.body) for message in messages) == [
        (b"k%d" % number, b"%d" % number) for number in range(1, 6)
    ]
    assert all(message.headers == {"n": message.body.decode(), "raw": b"\xff"} for message in messages)
    connection.delete_stream(copy)


def test_topic_and_partition_are_the_streams_name_and_the_partitions_number(
    spark: SparkSession, broker: Broker, connection: penstock.Connection, clicks: str
) -> None:
    stream = connection.stream(clicks)
    stream.publish_many([b"1", b"2"], key=b"a")
    stream.publish_many([b"3"], key=b"c")
    where = {message.body: message.partition for message in stream.read("first", until="next")}

    rows = spark.read.format("penstock").options(uri=broker.uri(), stream=clicks, schema="kafka").load().collect()

    assert {row.topic for row in rows} == {clicks}
    assert {row.timestampType for row in rows} == {1}
    assert {bytes(row.value): f"{clicks}-{row.partition}" for row in rows} == where


def test_a_decoded_body_is_in_parsed(
    spark: SparkSession, broker: Broker, connection: penstock.Connection, clicks: str
) -> None:
    connection.stream(clicks).publish(b'{"id": 7}', key=b"a")
    options = {"schema": "kafka", "parsed": "json", "parsedSchema": "id BIGINT", "columns": "value,topic"}

    rows = spark.read.format("penstock").options(uri=broker.uri(), stream=clicks, **options).load()

    assert [(bytes(row.value), row.topic, row.parsed.id) for row in rows.collect()] == [(b'{"id": 7}', clicks, 7)]


def test_a_column_that_cannot_be_followed_fails_before_anything_is_written(
    spark: SparkSession, broker: Broker, connection: penstock.Connection, clicks: str
) -> None:
    rows = spark.createDataFrame([("x", 1)], "value STRING, partition INT")
    writer = rows.write.format("penstock").mode("append").options(uri=broker.uri(), topic=clicks, schema="kafka")

    with pytest.raises(PySparkException, match="column 'partition' cannot choose a partition"):
        writer.save()

    assert sum(each.message_count for each in connection.stream(clicks).offsets()) == 0
