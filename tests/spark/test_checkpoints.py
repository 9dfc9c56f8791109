"""Checkpoints that go back, are copied, or belong to another stream, and retention that overtakes a query.

Each case prints what is expected and what came. A query either has every row once, or it ends with a sentence that says
what is wrong: it never loses or doubles a row silently.
"""

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

import penstock
from support import Broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STAGED = pytest.mark.parametrize("staged", [False, True], ids=["plain", "staged"])
ROWS_PER_RUN = 10


class Copying:
    """A query that copies a stream to its end, run as often as a test wants, on one Spark checkpoint."""

    def __init__(self, spark: SparkSession, broker: Broker, checkpoint: Path, staged: bool) -> None:
        self._spark = spark
        self._uri = broker.uri()
        self._staged = staged
        self.checkpoint = checkpoint

    def run(self, source: str, sink: str, **options: str) -> str:
        """Return an empty text, or the sentence that the query failed with."""
        rows = self._spark.readStream.format("penstock").options(
            uri=self._uri, stream=source, **{"startingOffsets": "earliest", **options}
        )
        writer: DataStreamWriter = rows.load().select("key", "body").writeStream.format("penstock")
        writer = writer.options(uri=self._uri, stream=sink, checkpointLocation=str(self.checkpoint))
        writer = writer.option("staged", str(self._staged).lower()).trigger(availableNow=True)
        while True:
            try:
                writer.start().awaitTermination()
                return ""
            except StreamingQueryException as error:
                # A worker that starts too slowly on a busy machine says nothing about the rows.
                if "failed to connect back" not in str(error):
                    return sentence(str(error))

    def forget(self, *batches: int) -> None:
        """Delete the files of batches, as one repairs a damaged checkpoint."""
        for kind in ("offsets", "commits"):
            for batch in batches:
                for name in (str(batch), f".{batch}.crc"):
                    (self.checkpoint / kind / name).unlink(missing_ok=True)


class Streams:
    """Streams with names of their own, and the rows in them."""

    def __init__(self, connection: penstock.Connection) -> None:
        self._connection = connection
        self._suffix = uuid4().hex[:8]

    def declare(self, name: str, **arguments: Any) -> str:
        full = f"{name}-{self._suffix}"
        self._connection.declare_stream(full, **arguments)
        return full

    def publish(self, stream: str, *rows: bytes) -> None:
        self._connection.stream(stream).publish_many(list(rows))

    def rows(self, stream: str) -> list[bytes]:
        return [message.body for message in self._connection.stream(stream).read("first", until="next")]


@pytest.fixture
def streams(connection: penstock.Connection) -> Streams:
    return Streams(connection)


def numbered(first: int, count: int = ROWS_PER_RUN) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def sentence(text: str) -> str:
    """Return what the connector said, out of Spark's long text."""
    found = re.findall(r"penstock\.\S*Error: ([^\n]*)", text)
    return found[-1] if found else text


def say(case: str, expected: str, wanted: list[bytes], got: list[bytes], failed: str) -> tuple[int, int]:
    """Print a line for the report; return how many rows are lost and how many are there too often."""
    lost, doubled = (Counter(wanted) - Counter(got)).total(), (Counter(got) - Counter(wanted)).total()
    outcome = f"refused: {failed}" if failed else "ended well"
    print(f"\n{case}: expected {expected}; {lost} of {len(wanted)} rows lost, {doubled} too often, {outcome}")
    return lost, doubled


def in_three_batches(copying: Copying, streams: Streams, source: str, sink: str, **options: str) -> None:
    for run in range(3):
        streams.publish(source, *numbered(run * ROWS_PER_RUN))
        assert copying.run(source, sink, **options) == ""
    assert streams.rows(sink) == numbered(0, 3 * ROWS_PER_RUN)


@STAGED
def test_a_checkpoint_that_goes_back_repeats_the_same_batches(
    spark: SparkSession, broker: Broker, streams: Streams, tmp_path: Path, staged: bool
) -> None:
    copying = Copying(spark, broker, tmp_path / "checkpoint", staged)
    source, sink = streams.declare("source"), streams.declare("sink")
    limit = {"maxOffsetsPerTrigger": str(ROWS_PER_RUN)}
    in_three_batches(copying, streams, source, sink, **limit)

    copying.forget(1, 2)
    streams.publish(source, *numbered(30))
    failed = copying.run(source, sink, **limit)

    told = say("rewound, the same batches", "every row once", numbered(0, 40), streams.rows(sink), failed)
    assert (told, failed) == ((0, 0), "")


@STAGED
def test_a_checkpoint_that_goes_back_and_cuts_other_batches_is_refused(
    spark: SparkSession, broker: Broker, streams: Streams, tmp_path: Path, staged: bool
) -> None:
    copying = Copying(spark, broker, tmp_path / "checkpoint", staged)
    source, sink = streams.declare("source"), streams.declare("sink")
    in_three_batches(copying, streams, source, sink)

    copying.forget(1, 2)
    streams.publish(source, *numbered(30))
    failed = copying.run(source, sink)

    lost, doubled = say("rewound, other batches", "a refusal", numbered(0, 40), streams.rows(sink), failed)
    assert "batch" in failed
    # What was there stays there.
    assert (lost, doubled) == (10, 0)


@STAGED
def test_a_copied_checkpoint_goes_on_into_another_stream(
    spark: SparkSession, broker: Broker, streams: Streams, tmp_path: Path, staged: bool
) -> None:
    blue = Copying(spark, broker, tmp_path / "blue", staged)
    green = Copying(spark, broker, tmp_path / "green", staged)
    source, first, second = (streams.declare(name) for name in ("source", "blue", "green"))
    streams.publish(source, *numbered(0))
    assert blue.run(source, first) == ""
    shutil.copytree(blue.checkpoint, green.checkpoint)

    streams.publish(source, *numbered(10, 20))
    assert blue.run(source, first) == ""
    failed = green.run(source, second)

    told = say("copied for another sink", "every new row once", numbered(10, 20), streams.rows(second), failed)
    assert (told, failed) == ((0, 0), "")
    assert streams.rows(first) == numbered(0, 30)


def test_a_checkpoint_of_another_stream_is_refused(
    spark: SparkSession, broker: Broker, streams: Streams, tmp_path: Path
) -> None:
    copying = Copying(spark, broker, tmp_path / "checkpoint", staged=False)
    source, other, sink = (streams.declare(name) for name in ("source", "other", "sink"))
    streams.publish(source, *numbered(0))
    streams.publish(other, *numbered(100, 30))
    assert copying.run(source, sink) == ""

    failed = copying.run(other, sink)

    told = say("another stream's checkpoint", "a refusal", numbered(0), streams.rows(sink), failed)
    assert told == (0, 0)
    assert f"is of partition '{source}'" in failed


def test_a_checkpoint_of_a_stream_that_was_declared_again_is_refused(
    spark: SparkSession, broker: Broker, streams: Streams, connection: penstock.Connection, tmp_path: Path
) -> None:
    copying = Copying(spark, broker, tmp_path / "checkpoint", staged=False)
    source, sink = streams.declare("source"), streams.declare("sink")
    streams.publish(source, *numbered(0))
    assert copying.run(source, sink) == ""

    connection.delete_stream(source)
    connection.declare_stream(source)
    streams.publish(source, *numbered(100, 30))
    failed = copying.run(source, sink)

    told = say("a stream declared again", "a refusal", numbered(0), streams.rows(sink), failed)
    assert told == (0, 0)
    assert source in failed


@STAGED
def test_retention_that_overtakes_a_query_is_told(
    spark: SparkSession, broker: Broker, streams: Streams, connection: penstock.Connection, tmp_path: Path, staged: bool
) -> None:
    """Remove the oldest rows while a backfill reads them, after its first batch."""
    copying = Copying(spark, broker, tmp_path / "checkpoint", staged)
    source, sink = streams.declare("source", dedicated=True), streams.declare("sink")
    rows = [b"%d" % number + bytes(100_000) for number in range(400)]
    # Retention removes whole segments, so the stream has several.
    for first in range(0, len(rows), 20):
        streams.publish(source, *rows[first : first + 20])
    limit = {"maxOffsetsPerTrigger": "40"}
    query = spark.readStream.format("penstock").options(
        uri=broker.uri(), stream=source, startingOffsets="earliest", **limit
    )
    trimmed = False

    def copied(batch: Any, _: int) -> None:
        nonlocal trimmed
        writer = batch.select("key", "body").write.format("penstock").mode("append")
        writer.options(uri=broker.uri(), stream=sink, staged=str(staged).lower()).save()
        if not trimmed:
            trimmed = True
            assert connection.stream(source).trim(10**9) > 41

    writer = query.load().writeStream.foreachBatch(copied)
    writer = writer.option("checkpointLocation", str(copying.checkpoint)).trigger(availableNow=True)
    with pytest.raises(StreamingQueryException) as refused:
        writer.start().awaitTermination()

    failed = sentence(str(refused.value))
    got = streams.rows(sink)
    say("retention overtakes a backfill", "a refusal", rows[: len(got)], got, failed)
    assert got == rows[:40]
    assert "retention" in failed
