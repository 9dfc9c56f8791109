"""Queues as unbounded tables: the reader as Spark calls it, and a real session, with a real broker."""

import pickle
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

import penstock
from penstock.spark.errors import DataLossError, OptionError
from penstock.spark.queues import QueueMicroBatchReader
from penstock.spark.source import PenstockSource
from support import Broker

BODIES = StructType().add("offset", "long").add("body", "binary")


@pytest.fixture
def queue(connection: penstock.Connection) -> str:
    """Make a queue with twelve messages."""
    name = f"orders-{uuid4().hex[:8]}"
    connection.declare_queue(name)
    publish(connection, name, range(12))
    return name


def publish(connection: penstock.Connection, queue: str, numbers: range) -> None:
    connection.publish_many([b"%d" % number for number in numbers], routing_key=queue)


def source(broker: Broker, queue: str, **options: str) -> PenstockSource:
    return PenstockSource({"uri": broker.uri(), "queue": queue, "owner": "lake", "pollTimeoutMs": "0", **options})


def micro(broker: Broker, queue: str, **options: str) -> QueueMicroBatchReader:
    reader = source(broker, queue, **options).streamReader(BODIES)
    assert isinstance(reader, QueueMicroBatchReader)
    return reader


def read(reader: Any, partitions: list[Any]) -> list[bytes]:
    """Read as executors do, with copies."""
    reader = pickle.loads(pickle.dumps(reader))
    parts = [pickle.loads(pickle.dumps(partition)) for partition in partitions]
    tables = [pa.Table.from_batches(reader.read(part), None) for part in parts]
    return [body for table in tables for body in table["body"].to_pylist()]


def numbers(*wanted: int) -> list[bytes]:
    return [b"%d" % number for number in range(*wanted)]


def at(lease: int, parts: int = 1) -> dict[str, Any]:
    return {"owner": "lake", "lease": lease, "parts": parts}


def test_each_micro_batch_is_a_lease_and_the_one_before_is_acknowledged(
    broker: Broker, connection: penstock.Connection, queue: str
) -> None:
    reader = micro(broker, queue, maxOffsetsPerTrigger="5", minPartitions="2")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(5)
    start = reader.initialOffset()
    assert start == at(0, 2)

    first = reader.latestOffset(start, limit)
    second = reader.latestOffset(first, limit)

    assert (first, second) == (at(1, 2), at(2, 2))
    assert read(reader, reader.partitions(first, second)) == numbers(5, 10)
    (owner,) = connection.admin.list_leases(queue).owners
    assert (owner.acked, [lease.lease for lease in owner.leases]) == (1, [2])
    with pytest.raises(DataLossError, match="no lease 1"):
        read(reader, reader.partitions(start, first))
    reader.stop()


def test_a_driver_that_starts_again_gets_the_same_lease(broker: Broker, queue: str) -> None:
    """It died after the reservation and before the Spark checkpoint had it."""
    lost = micro(broker, queue, maxOffsetsPerTrigger="5")
    lost.latestOffset(lost.initialOffset(), lost.getDefaultReadLimit())

    reader = micro(broker, queue, maxOffsetsPerTrigger="3")
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())

    assert end == at(1)
    assert read(reader, reader.partitions(at(0), end)) == numbers(5)


def test_a_repeated_batch_is_cut_as_it_was_whatever_the_options_say_now(broker: Broker, queue: str) -> None:
    reader = micro(broker, queue, minPartitions="3")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())

    again = micro(broker, queue, minPartitions="5").partitions(at(0), end)

    assert [(part.part, part.parts, part.origin.partition("/")[2]) for part in again] == [
        (part, 3, f"lake/{part}of3") for part in range(3)
    ]
    assert read(reader, again) == numbers(12)


def test_an_idle_query_stays_where_it_is_and_a_busy_one_is_bounded(
    broker: Broker, connection: penstock.Connection, queue: str
) -> None:
    reader = micro(broker, queue, maxBytesPerTrigger="4")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(4)

    end = reader.latestOffset(reader.initialOffset(), ReadMaxBytes(4))
    assert read(reader, reader.partitions(at(0), end)) == numbers(4)
    end = reader.latestOffset(end, ReadAllAvailable())
    assert read(reader, reader.partitions(at(1), end)) == numbers(4, 12)

    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert connection.admin.get_queue(queue).unacked_count == 0
    assert reader.partitions(end, end) == []


def test_available_now_ends_with_what_was_there_and_acknowledges_it(
    broker: Broker, connection: penstock.Connection, queue: str
) -> None:
    reader = micro(broker, queue, maxOffsetsPerTrigger="5")
    reader.prepareForTriggerAvailableNow()
    end, seen = reader.initialOffset(), 0
    while True:
        start, end = end, reader.latestOffset(end, reader.getDefaultReadLimit())
        if start == end:
            break
        seen += len(read(reader, reader.partitions(start, end)))
        publish(connection, queue, range(100, 103))

    assert (seen, end) == (12, at(3))
    standing = connection.admin.get_queue(queue)
    assert (standing.ready_count, standing.unacked_count) == (9, 0)


def test_a_checkpoint_and_an_owner_that_do_not_belong_together_are_told(
    broker: Broker, connection: penstock.Connection, queue: str
) -> None:
    reader = micro(broker, queue)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with pytest.raises(OptionError, match="written by owner 'lake'"):
        micro(broker, queue, owner="pond").latestOffset(end, ReadAllAvailable())
    connection.release_leases(queue, "lake")

    with pytest.raises(penstock.InvalidArgumentError, match="up to 0"):
        micro(broker, queue).latestOffset(end, ReadAllAvailable())
    with pytest.raises(DataLossError, match="another query goes by that name"):
        reader.partitions(at(2), at(1))


@pytest.mark.slow
def test_a_batch_reads_a_lease_that_was_reserved_and_leaves_it(
    spark: SparkSession, broker: Broker, connection: penstock.Connection, queue: str
) -> None:
    connection.reserve_lease(queue, "nightly", 1, messages_max=10)
    options = {"uri": broker.uri(), "queue": queue, "owner": "nightly", "lease": "1", "minPartitions": "2"}

    rows = spark.read.format("penstock").options(**options).load()

    assert rows.rdd.getNumPartitions() == 2
    for _ in range(2):
        assert [bytes(row.body) for row in rows.orderBy("offset").collect()] == numbers(10)
    assert {row.partition for row in rows.select("partition").collect()} == {queue}
    assert connection.ack_leases(queue, "nightly", 1) == 10
    with pytest.raises(PySparkException, match="no lease 1"):
        rows.collect()
    with pytest.raises(PySparkException, match="reserve one with the client"):
        spark.read.format("penstock").options(uri=broker.uri(), queue=queue, owner="nightly").load().collect()


def copy(
    spark: SparkSession, broker: Broker, queue: str, sink: str, checkpoint: Path, bad: str = ""
) -> PySparkException | None:
    """Move a queue into a stream, by batches of ten rows in two tasks; one of them dies of a bad row."""
    rows = (
        spark.readStream.format("penstock")
        .options(uri=broker.uri(), queue=queue, owner="lake", maxOffsetsPerTrigger="10", minPartitions="2")
        .load()
    )
    dying = f"CASE WHEN CAST(body AS STRING) = '{bad}' THEN raise_error('bad row') ELSE body END AS body"
    query = (
        rows.selectExpr(dying if bad else "body")
        .writeStream.format("penstock")
        .options(uri=broker.uri(), stream=sink, checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(300)
    except PySparkException as error:
        return error
    finally:
        query.stop()
    return None


@pytest.mark.slow
def test_a_queue_is_moved_into_a_stream_once_though_a_batch_died_half_way(
    spark: SparkSession, broker: Broker, connection: penstock.Connection, queue: str, tmp_path: Path
) -> None:
    connection.declare_stream(f"copy-{queue}")
    sink = connection.stream(f"copy-{queue}")
    publish(connection, queue, range(12, 35))

    # The fourth row of the second task of the second batch.
    error = copy(spark, broker, queue, sink.name, tmp_path / "checkpoint", bad="18")
    assert "bad row" in str(error)
    died_at = sink.info().message_count
    assert 10 <= died_at < 20
    connection.ack_leases(queue, "lake", 0)
    assert copy(spark, broker, queue, sink.name, tmp_path / "checkpoint") is None
    publish(connection, queue, range(35, 40))
    assert copy(spark, broker, queue, sink.name, tmp_path / "checkpoint") is None

    got = Counter(message.body for message in sink.read("first", until="next"))
    assert got == Counter(numbers(40))
    standing = connection.admin.get_queue(queue)
    assert (standing.ready_count, standing.unacked_count) == (0, 0)
