"""Rows, schemas and limits at the edges, in a real session: stored as they are, or refused before a task runs."""

import json
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import penstock
from penstock.spark.errors import OptionError
from penstock.spark.source import PenstockSource
from support import Broker
from support.fake_flight import FakeFlight

BODIES = StructType().add("offset", "long").add("body", "binary")


@pytest.fixture
def stream(connection: penstock.Connection) -> penstock.Stream:
    name = f"edges-{uuid4().hex[:8]}"
    connection.declare_stream(name, partitions=2)
    return connection.stream(name)


def test_a_batch_whose_start_is_behind_its_end_is_refused(server: FakeFlight) -> None:
    """It was empty, without a word."""
    server.declare("events")
    server.publish("events", *(b"%d" % number for number in range(10)))
    options = {"uri": server.uri, "stream": "events", "endingOffsets": '{"events": 3}'}

    for start in ('{"events": 9}', "latest"):
        reader = PenstockSource({**options, "startingOffsets": start}).reader(BODIES)
        with pytest.raises(OptionError, match="behind its end at 3"):
            reader.partitions()
    assert PenstockSource({**options, "startingOffsets": '{"events": 3}'}).reader(BODIES).partitions() == []


@pytest.mark.slow
def test_texts_that_are_no_unicode_are_stored_and_what_leads_elsewhere_is_refused(
    spark: SparkSession, broker: Broker, connection: penstock.Connection, stream: penstock.Stream
) -> None:
    other = f"other-{stream.name}"
    connection.declare_stream(other)

    def write(sql: str) -> None:
        spark.sql(sql).write.format("penstock").mode("append").options(uri=broker.uri(), stream=stream.name).save()

    write("SELECT CAST(X'FFFE' AS STRING) AS body, CAST(X'FE' AS STRING) AS key")
    for sql, text in (
        (f"SELECT 'x' AS body, '{other}' AS routing_key", "'routing_key' belongs to 'exchange'"),
        ("SELECT 'x' AS body, 'y' AS body", "there are 2 columns 'body'"),
    ):
        with pytest.raises(PySparkException, match=text):
            write(sql)

    messages = list(stream.read("first", until="next"))
    assert [(message.body, message.key) for message in messages] == [(b"\xff\xfe", b"\xfe")]
    assert list(connection.stream(other).read("first", until="next")) == []
    reader = spark.read.format("penstock").options(uri=broker.uri(), stream=stream.name)
    with pytest.raises(PySparkException, match="column 'key' must not be NOT NULL"):
        reader.schema("key BINARY NOT NULL").load().selectExpr("key IS NULL").collect()


@pytest.mark.slow
def test_a_query_that_is_started_again_with_another_schema_has_each_row_once(
    spark: SparkSession, broker: Broker, stream: penstock.Stream, tmp_path: Path
) -> None:
    """Also with a least number of rows above what there is, which an AvailableNow run does not wait for."""
    options = {"minOffsetsPerTrigger": "1000", "maxRecordsPerPartition": "2", "startingOffsets": "earliest"}
    found: list[str] = []

    def run(fields: str, *bodies: bytes) -> None:
        for number, body in enumerate(bodies):
            stream.publish(body, key=b"%d" % number)
        decoding = {"parsed": "json", "parsedSchema": fields}
        rows = (
            spark.readStream.format("penstock")
            .options(uri=broker.uri(), stream=stream.name, **options, **decoding)
            .load()
        )
        writing = (
            rows.selectExpr("to_json(value) AS value")
            .writeStream.foreachBatch(lambda batch, _: found.extend(row.value for row in batch.collect()))
            .option("checkpointLocation", str(tmp_path))
        )
        assert writing.trigger(availableNow=True).start().awaitTermination(100)

    run("a INT, old STRING", *(json.dumps({"a": number, "old": "x"}).encode() for number in range(5)))
    run("a STRING, new ARRAY<INT>", b'{"a": 5, "new": [1]}', b'{"a": "six"}')

    assert sorted(found) == sorted(
        [f'{{"a":{number},"old":"x"}}' for number in range(5)] + ['{"a":"5","new":[1]}', '{"a":"six"}']
    )
