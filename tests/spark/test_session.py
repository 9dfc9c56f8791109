"""A real session and a real broker: users' commands and their results."""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr, rand
from pyspark.sql.streaming import DataStreamWriter

import penstock
from support import Broker

pytestmark = [pytest.mark.slow]


@pytest.fixture
def stream(connection: penstock.Connection) -> penstock.Stream:
    name = f"events-{uuid4().hex[:8]}"
    connection.declare_stream(name)
    return connection.stream(name)


def reading(spark: SparkSession, broker: Broker, name: str, **options: str) -> DataFrame:
    return spark.read.format("penstock").options(uri=broker.uri(), stream=name, **options).load()


def bodies(stream: penstock.Stream) -> list[bytes]:
    return [message.body for message in stream.read("first", until="next")]


def run_to_the_end(
    spark: SparkSession,
    broker: Broker,
    source: penstock.Stream,
    sink: penstock.Stream,
    checkpoint: Path,
    **options: str,
) -> None:
    """Copy all rows, by batches of ten."""
    rows = (
        spark.readStream.format("penstock")
        .options(uri=broker.uri(), stream=source.name, startingOffsets="earliest", maxOffsetsPerTrigger="10", **options)
        .load()
    )
    query = (
        rows.select("key", "body")
        .writeStream.format("penstock")
        .options(uri=broker.uri(), stream=sink.name, checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(100)
    finally:
        query.stop()


def started_again(writing: DataStreamWriter) -> None:
    """Run to the end, although Spark may give its Python up: docs/spark.md, "Limits of Spark's Python sources"."""
    for _ in range(10):
        query = writing.start()
        try:
            assert query.awaitTermination(600)
            return
        except PySparkException as error:
            if "failed to connect back" not in str(error):
                raise
        finally:
            query.stop()
    raise AssertionError("no Python worker of ten connected back")


def test_a_stream_is_a_table(spark: SparkSession, broker: Broker, stream: penstock.Stream) -> None:
    properties = penstock.Properties(reply_to="r", message_id="m")
    stream.publish_many([b"%d" % number for number in range(100)])
    stream.publish(b"last", key=b"k", properties=properties, headers={"word": "wörd", "raw": b"\xff"})

    rows = reading(spark, broker, stream.name, includeHeaders="true", minPartitions="2")

    assert rows.rdd.getNumPartitions() == 2
    got = rows.orderBy("offset").collect()
    assert [bytes(row.body) for row in got] == [b"%d" % number for number in range(100)] + [b"last"]
    assert (bytes(got[-1].key), got[-1].properties.reply_to) == (b"k", "r")
    assert got[-1].headers == [("raw", b"\xff"), ("word", "wörd".encode())]
    assert (got[0].key, got[0].headers, got[0].properties) == (None, [], None)
    messages = list(stream.read("first", until="next"))
    assert [row.offset for row in got] == [message.offset for message in messages]
    seconds = rows.select(expr("unix_millis(timestamp) AS ms")).collect()
    assert {row.ms for row in seconds} == {message.stored_at_ms for message in messages}


def test_union_and_self_join_see_every_row(spark: SparkSession, broker: Broker, stream: penstock.Stream) -> None:
    """With filters pushed down, Spark 4.3 leaks the plan of one scan into another; this source takes none."""
    stream.publish_many([b"%d" % number for number in range(12)])
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        rows = reading(spark, broker, stream.name, columns="offset,body")
        first = rows.agg({"offset": "min"}).collect()[0][0]

        assert rows.filter(col("offset") < first + 4).union(rows).count() == 16
        assert rows.alias("a").join(rows.alias("b"), "offset").filter(col("offset") >= first + 4).count() == 8
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_rows_are_published_and_a_query_copies_them_once(
    spark: SparkSession, broker: Broker, stream: penstock.Stream, connection: penstock.Connection, tmp_path: Path
) -> None:
    connection.declare_stream(f"copy-{stream.name}")
    copy = connection.stream(f"copy-{stream.name}")
    (
        spark.range(25)
        .select(expr("CAST(id AS STRING) AS body"), expr("CAST(id % 3 AS STRING) AS key"))
        .write.format("penstock")
        .mode("append")
        .options(uri=broker.uri(), stream=stream.name)
        .save()
    )
    assert sorted(map(int, bodies(stream))) == list(range(25))

    run_to_the_end(spark, broker, stream, copy, tmp_path / "checkpoint", group="copier")
    stream.publish_many([b"100", b"101"])
    run_to_the_end(spark, broker, stream, copy, tmp_path / "checkpoint", group="copier")

    assert bodies(copy) == bodies(stream)
    assert [(group.name, group.lag) for group in stream.groups()] == [("copier", 0)]


def test_a_batch_that_was_not_committed_is_repeated_and_stored_once(
    spark: SparkSession, broker: Broker, stream: penstock.Stream, connection: penstock.Connection, tmp_path: Path
) -> None:
    """A driver that dies between writing and committing leaves its offsets and no commit."""
    connection.declare_stream(f"copy-{stream.name}")
    copy = connection.stream(f"copy-{stream.name}")
    stream.publish_many([b"%d" % number for number in range(25)])
    checkpoint = tmp_path / "checkpoint"
    run_to_the_end(spark, broker, stream, copy, checkpoint)
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)

    run_to_the_end(spark, broker, stream, copy, checkpoint)

    assert bodies(copy) == bodies(stream)


def test_a_repeated_batch_with_other_rows_in_its_tasks_is_stored_once_when_it_is_staged(
    spark: SparkSession, broker: Broker, stream: penstock.Stream, connection: penstock.Connection, tmp_path: Path
) -> None:
    """Kill two drivers.

    One when a task has staged and another has not, one when the batch is published and not committed.

    Each time the rows go to other tasks.
    """
    connection.declare_stream(f"copy-{stream.name}")
    copy = connection.stream(f"copy-{stream.name}")
    stream.publish_many([b"%d" % number for number in range(60)])
    checkpoint, has_failed = tmp_path / "checkpoint", tmp_path / "has-failed"

    def failing_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if TaskContext.get().partitionId() == 1 and not has_failed.exists():
            has_failed.touch()
            raise OSError("this task dies at its end")

    def run() -> None:
        rows = (
            spark.readStream.format("penstock")
            .options(uri=broker.uri(), stream=stream.name, startingOffsets="earliest")
            .load()
            .select("key", "body", rand().alias("chance"))
            .repartition(2, "chance")
            .select("key", "body")
        )
        writing = (
            rows.mapInArrow(failing_once, "key BINARY, body BINARY")
            .writeStream.format("penstock")
            .options(uri=broker.uri(), stream=copy.name, staged="true", checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
        )
        started_again(writing)

    with pytest.raises(PySparkException, match="dies at its end"):
        run()
    assert bodies(copy) == []
    run()
    assert sorted(map(int, bodies(copy))) == list(range(60))
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)

    run()

    assert sorted(map(int, bodies(copy))) == list(range(60))
    stage = next(each for each in connection.admin.list_stages() if each.routing_key == copy.name)
    assert (stage.last_batch, stage.is_copying, stage.row_count) == (0, False, 0)


def test_a_staged_write_leaves_no_stage_unless_its_name_was_given(
    spark: SparkSession, broker: Broker, stream: penstock.Stream, connection: penstock.Connection
) -> None:
    rows = spark.range(25).repartition(3).select(expr("CAST(id AS STRING) AS body"))

    def write(**options: str) -> None:
        options |= {"uri": broker.uri(), "stream": stream.name, "staged": "true"}
        rows.write.format("penstock").mode("append").options(**options).save()

    write()
    assert sorted(map(int, bodies(stream))) == list(range(25))
    assert [each for each in connection.admin.list_stages() if each.routing_key == stream.name] == []

    for _ in range(2):
        write(producer=f"job-{stream.name}")
    assert len(bodies(stream)) == 50
    assert [each.last_batch for each in connection.admin.list_stages() if each.routing_key == stream.name] == [1]


def test_json_bodies_are_columns_and_bad_ones_have_a_stream_of_their_own(
    spark: SparkSession, broker: Broker, stream: penstock.Stream, connection: penstock.Connection
) -> None:
    connection.declare_stream(f"bad-{stream.name}")
    stream.publish_many([json.dumps({"id": 1, "at": "2026-01-31T12:00:00Z"}).encode(), b"oops", b'{"id": 2}'])

    rows = reading(
        spark,
        broker,
        stream.name,
        parsed="json",
        parsedSchema="id BIGINT, at TIMESTAMP",
        deadLetterStream=f"bad-{stream.name}",
    )

    got = rows.select("value.*").orderBy("id").collect()
    assert [row.id for row in got] == [1, 2]
    assert (got[0]["at"].timestamp(), got[1]["at"]) == (1769860800.0, None)
    (bad,) = connection.stream(f"bad-{stream.name}").read("first", until="next")
    assert (bad.body, bad.headers["reason"]) == (b"oops", "the body is not a JSON object")


def test_avro_and_protobuf_bodies_are_columns_too(
    spark: SparkSession, broker: Broker, stream: penstock.Stream, connection: penstock.Connection, tmp_path: Path
) -> None:
    """One body is valid in both formats: the number 7 as a long of Avro, and as field 1 of a message."""
    connection.declare_stream(f"bad-{stream.name}")
    stream.publish_many([b"\x0e", b"\x08\x07", b"\xff"])
    fields = [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]
    avro = json.dumps({"type": "record", "name": "R", "fields": fields})
    descriptors = descriptor_pb2.FileDescriptorSet()
    place = descriptors.file.add(name="r.proto", package="r", syntax="proto3").message_type.add(name="R").field
    place.add(name="id", number=1, type=descriptor_pb2.FieldDescriptorProto.TYPE_UINT64, label=1)
    (tmp_path / "r.desc").write_bytes(descriptors.SerializeToString())
    bad = f"bad-{stream.name}"

    first = reading(spark, broker, stream.name, parsed="avro", parsedSchema=avro, deadLetterStream=bad)
    second = reading(
        spark, broker, stream.name, parsed="protobuf", parsedDescriptor=str(tmp_path / "r.desc"), parsedMessage="r.R"
    )

    assert [row.ms for row in first.select(expr("unix_millis(value.at) AS ms")).collect()] == [7]
    assert [row.value and row.value.id for row in second.orderBy("offset").collect()] == [None, 7, None]
    reasons = [message.headers["reason"] for message in connection.stream(bad).read("first", until="next")]
    assert ["extra bytes after the Avro record" in str(reason) for reason in reasons] == [True, False]
    union = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]}
    with pytest.raises(PySparkException, match="a union of several types"):
        reading(spark, broker, stream.name, parsed="avro", parsedSchema=json.dumps(union))


def test_what_cannot_be_is_refused_where_the_user_sees_it(
    spark: SparkSession, broker: Broker, stream: penstock.Stream
) -> None:
    with pytest.raises(PySparkException, match="no option 'subscribes'"):
        reading(spark, broker, stream.name, subscribes="x")
    with pytest.raises(PySparkException, match="'id' cannot be published"):
        spark.range(3).write.format("penstock").mode("append").options(uri=broker.uri(), stream=stream.name).save()
    rows = spark.range(3).select(expr("CAST(id AS STRING) AS body"))
    writer = rows.write.format("penstock").mode("append").options(uri=broker.uri(), stream="nowhere")
    for action in (reading(spark, broker, "nowhere").count, writer.save):
        with pytest.raises(PySparkException) as refused:
            action()
        last = str(refused.value).partition(" SQLSTATE")[0].strip().splitlines()[-1]
        assert last == (
            "penstock.spark.errors.NotFoundError: stream 'nowhere' in vhost '/' not found; declare it first or check "
            "the name"
        )
        # A task would have started with this.
        assert "Job aborted" not in str(refused.value)
