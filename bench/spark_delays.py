"""How long a row takes to the driver's `foreachBatch`, and what a micro-batch costs, beside Spark's rate source."""

import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, Row, SparkSession

import penstock

__all__ = ["delays", "idle", "overhead"]

BATCHES = 20
BATCH_ROWS = 10
INTERVAL = "500 milliseconds"
BATCH_SECONDS_MAX = 900
ROWS = 25
IDLE_SETTLING_SECONDS = 10
IDLE_SECONDS = 60


def overhead(spark: SparkSession, uri: str, stream: str, folder: Path) -> dict[str, float]:
    """Return medians of Spark's trigger times. The source does not wait for messages, which is no cost."""
    rate = spark.readStream.format("rate").option("rowsPerSecond", BATCH_ROWS).load()
    rows = followed(spark, uri, stream, pollTimeoutMs="0", columns="offset,body")
    of_rate = trigger_ms(rate, folder / "rate")
    over = threading.Event()
    publisher = threading.Thread(target=publish, args=(uri, stream, over))
    publisher.start()
    try:
        of_source = trigger_ms(rows, folder / "penstock")
    finally:
        over.set()
        publisher.join()
    return {"overhead": of_source - of_rate, "source": of_source, "rate_source": of_rate}


def delays(spark: SparkSession, uri: str, stream: str, folder: Path) -> dict[str, float]:
    """Return how old a row is when `foreachBatch` has it, one row a second; the first ones start Python and compile."""
    rate = spark.readStream.format("rate").option("rowsPerSecond", 1).load().select("timestamp")
    of_rate = ages(rate, folder / "rate", lambda row: row.timestamp.timestamp())
    over = threading.Event()
    publisher = threading.Thread(target=publish_times, args=(uri, stream, over))
    publisher.start()
    try:
        rows = followed(spark, uri, stream, columns="body")
        of_source = ages(rows, folder / "penstock", lambda row: struct.unpack("<d", row.body)[0])
    finally:
        over.set()
        publisher.join()
    return {"overhead": of_source - of_rate, "source": of_source, "rate_source": of_rate}


def idle(spark: SparkSession, uri: str, stream: str, folder: Path) -> dict[str, float]:
    """Follow a stream that gets no message, and say when: the broker's time is taken outside."""
    rows = followed(spark, uri, stream, columns="offset")
    query = rows.writeStream.format("noop").option("checkpointLocation", str(folder / "idle")).start()
    try:
        time.sleep(IDLE_SETTLING_SECONDS)
        (folder / "settled").touch()
        time.sleep(IDLE_SECONDS)
        if query.exception() is not None:
            raise RuntimeError(f"the query ended: {query.exception()}")
    finally:
        query.stop()
    return {"seconds": float(IDLE_SECONDS)}


def followed(spark: SparkSession, uri: str, stream: str, **options: str) -> DataFrame:
    return spark.readStream.format("penstock").options(uri=uri, stream=stream, **options).load()


def publish(uri: str, stream: str, over: threading.Event) -> None:
    with penstock.connect(uri, native=False) as connection:
        while not over.wait(0.5):
            connection.stream(stream).publish_many([b"x"] * BATCH_ROWS)


def publish_times(uri: str, stream: str, over: threading.Event) -> None:
    with penstock.connect(uri, native=False) as connection:
        while not over.wait(1):
            connection.stream(stream).publish_many([struct.pack("<d", time.time())])


def ages(rows: DataFrame, checkpoint: Path, published_at: Callable[[Row], float]) -> float:
    """Return the median age of a row in milliseconds."""
    found: list[float] = []
    enough = threading.Event()

    def take(batch: DataFrame, number: int) -> None:
        del number
        taken = batch.collect()
        now = time.time()
        found.extend((now - published_at(row)) * 1_000 for row in taken)
        if len(found) >= ROWS + 3:
            enough.set()

    query = rows.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint)).start()
    try:
        if not enough.wait(BATCH_SECONDS_MAX):
            raise RuntimeError(f"{len(found)} rows came: {query.exception()}")
    finally:
        query.stop()
    return float(median(found[3 : ROWS + 3]))


def trigger_ms(rows: DataFrame, checkpoint: Path) -> float:
    """Return the time of batches that had rows, without the first two, which start Python and compile."""
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(processingTime=INTERVAL).start()
    found: dict[int, int] = {}
    give_up = time.monotonic() + BATCH_SECONDS_MAX
    try:
        while len(found) < BATCHES + 2:
            if not query.isActive or time.monotonic() > give_up:
                raise RuntimeError(f"{len(found)} batches came: {query.exception()}")
            query.awaitTermination(0.5)
            for each in query.recentProgress:
                if each.numInputRows:
                    found[each.batchId] = each.durationMs["triggerExecution"]
    finally:
        query.stop()
    return float(median([found[number] for number in sorted(found)][2:]))
