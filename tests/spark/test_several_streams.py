"""Queries over several streams, offsets in a query's progress, and first batches that are repeated; a real broker."""

import json
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.spark.streams import DescribedStreams
from penstock.spark.subscriptions import parse_assignment
from penstock.spark.wire import Wire
from support import Broker

pytestmark = [pytest.mark.slow]


@pytest.fixture
def names(connection: penstock.Connection) -> list[str]:
    """Declare a stream, and one with two partitions; their names begin with the same letters."""
    prefix = f"many{uuid4().hex[:6]}"
    connection.declare_stream(f"{prefix}.orders")
    connection.declare_stream(f"{prefix}.clicks", partitions=2)
    connection.stream(f"{prefix}.orders").publish_many([b"order %d" % number for number in range(10)])
    connection.stream(f"{prefix}.clicks").publish_keyed((b"%d" % number, b"click %d" % number) for number in range(20))
    return [f"{prefix}.orders", f"{prefix}.clicks"]


def run(rows: DataFrame, folder: Path, name: str) -> list[str]:
    """Run a query to its end; return its bodies so far, sorted."""
    query = (
        rows.selectExpr("CAST(body AS STRING) AS body")
        .writeStream.format("parquet")
        .options(path=str(folder / name), checkpointLocation=str(folder / f"{name}-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(100)
    finally:
        query.stop()
    return sorted(row.body for row in rows.sparkSession.read.parquet(str(folder / name)).collect())


def following(spark: SparkSession, broker: Broker, **options: str) -> DataFrame:
    return spark.readStream.format("penstock").options(uri=broker.uri(), **options).load()


def test_streams_of_a_list_and_of_a_pattern_are_read_together(
    spark: SparkSession, broker: Broker, connection: penstock.Connection, names: list[str], tmp_path: Path
) -> None:
    prefix = names[0].partition(".")[0]
    all_rows = sorted([*(f"order {number}" for number in range(10)), *(f"click {number}" for number in range(20))])
    batch = spark.read.format("penstock").options(uri=broker.uri(), subscribe=",".join(names)).load()
    assert sorted(bytes(row.body).decode() for row in batch.collect()) == all_rows
    assert {row.partition for row in batch.select("partition").distinct().collect()} == {
        names[0],
        f"{names[1]}-0",
        f"{names[1]}-1",
    }
    pattern = following(spark, broker, subscribePattern=f"{prefix}\\..*", startingOffsets="earliest")
    assert run(pattern, tmp_path, "all") == all_rows

    connection.declare_stream(f"{prefix}.late")
    connection.stream(f"{prefix}.late").publish_many([b"late 1", b"late 2"])

    assert run(pattern, tmp_path, "all") == sorted([*all_rows, "late 1", "late 2"])


def test_assigned_partitions_are_read_and_no_others(
    spark: SparkSession, broker: Broker, connection: penstock.Connection, names: list[str]
) -> None:
    assigned = json.dumps({names[1]: [1]})
    starts = json.dumps({names[1]: {"1": -2}})

    read = spark.read.format("penstock").options(uri=broker.uri(), assign=assigned, startingOffsets=starts).load()

    there = connection.stream(names[1]).offsets()
    assert {row.partition for row in read.collect()} == {f"{names[1]}-1"}
    assert read.count() == there[1].message_count


def test_a_wait_for_an_assigned_partition_is_not_ended_by_another_one(
    broker: Broker, connection: penstock.Connection, names: list[str]
) -> None:
    with Wire(broker.uri()) as wire:
        streams = DescribedStreams(wire, parse_assignment(json.dumps({names[1]: [1]})))
        before = streams.look()
        (other,) = wire.describe((names[1],)).keys() - before.keys()
        connection.publish(b"busy", routing_key=other)
        begun = monotonic()
        assert streams.look(400) == before
        assert monotonic() - begun >= 0.4

        connection.publish(b"new", routing_key=f"{names[1]}-1")
        (after,) = streams.look(30_000).values()

    assert (after.stream, after.number) == (names[1], 1)
    assert after.rows == before[after.name].rows + 1


def test_the_progress_of_a_query_has_the_lag_in_rows(
    spark: SparkSession, broker: Broker, names: list[str], tmp_path: Path
) -> None:
    rows = following(spark, broker, stream=names[0], startingOffsets="earliest", maxOffsetsPerTrigger="4")
    query = (
        rows.select("body")
        .writeStream.format("noop")
        .options(checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(100)
        sources = [each["sources"][0] for each in query.recentProgress if each["numInputRows"]]
    finally:
        query.stop()

    found = []
    for source in sources:
        end, latest = (json.loads(source[name])["partitions"][names[0]] for name in ("endOffset", "latestOffset"))
        assert end["id"] == latest["id"]
        found.append(latest["rows"] - end["rows"])
    assert found == [6, 2, 0]


def test_a_query_that_died_in_its_first_batch_repeats_it_though_it_began_at_the_end(
    spark: SparkSession, broker: Broker, connection: penstock.Connection, names: list[str], tmp_path: Path
) -> None:
    """Spark asks for the start again, which is the new end: the rows of the batch were skipped."""
    has_failed = tmp_path / "has-failed"
    stream = connection.stream(names[0])

    def failing_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if TaskContext.get() is not None and not has_failed.exists():
            has_failed.touch()
            raise OSError("this task dies at its end")

    rows = following(spark, broker, stream=names[0], startingOffsets="latest").select("body")
    failing = rows.mapInArrow(failing_once, "body BINARY")
    query = (
        failing.selectExpr("CAST(body AS STRING) AS body")
        .writeStream.format("parquet")
        .options(path=str(tmp_path / "out"), checkpointLocation=str(tmp_path / "out-checkpoint"))
        .start()
    )
    try:
        # The query begins at the end, at some time: publish until it has a row.
        for number in range(2_000):
            stream.publish(b"new %d" % number)
            if has_failed.exists() or not query.isActive:
                break
            sleep(0.1)
        with pytest.raises(PySparkException, match="dies at its end"):
            query.awaitTermination(100)
    finally:
        query.stop()
    assert has_failed.exists()
    (offset,) = (tmp_path / "out-checkpoint" / "offsets").glob("0")
    end = json.loads(offset.read_text().splitlines()[-1])["partitions"][names[0]]
    first, last = end["cuts"][0][0], end["next"]
    stream.publish(b"last")

    found = run(failing, tmp_path, "out")

    wanted = [each.body.decode() for each in stream.read(first, until="next")]
    assert last > first
    assert found == sorted(wanted)
