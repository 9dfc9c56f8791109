"""The Spark process of the rows about Spark: a session on two threads that reads a stream and another source.

Arguments: measurement, the broker's URI, the stream, a folder to write to. Prints its figures as JSON.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.spark.ranges import OffsetRange
from penstock.spark.wire import Wire

COLUMNS = ("offset", "timestamp", "body")
FILES = 2
ROUNDS = 3
BATCHES = 20
BATCH_ROWS = 10
INTERVAL = "500 milliseconds"
BATCH_SECONDS_MAX = 900
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def read(spark: SparkSession, uri: str, stream: str, folder: Path) -> dict[str, float]:
    """Return the medians of some alternating rounds of Parquet and stream, after a round to warm up."""
    write_parquet(uri, stream, folder / "table")

    def parquet() -> DataFrame:
        return spark.read.parquet(str(folder / "table"))

    def penstock_table() -> DataFrame:
        options = {"uri": uri, "stream": stream, "columns": ",".join(COLUMNS), "minPartitions": str(FILES)}
        return spark.read.format("penstock").options(**options).load()

    rounds = [(costs(parquet), costs(penstock_table)) for _ in range(ROUNDS + 1)][1:]
    of_parquet = median(each[0][0] for each in rounds)
    of_stream = median(each[1][0] for each in rounds)
    return {
        "cpu_ratio": of_stream / of_parquet,
        "spark_cpu": of_stream,
        "parquet_cpu": of_parquet,
        "wall": median(each[1][1] for each in rounds),
        "readings": ROUNDS + 2,
    }


def write_parquet(uri: str, stream: str, folder: Path) -> None:
    """Write the stream's rows as Parquet, in as many files as tasks."""
    folder.mkdir()
    with Wire(uri) as wire:
        there = wire.describe(stream)
        first, end = there.first[stream], there.end[stream]
        for number in range(FILES):
            low, high = (first + (end - first) * each // FILES for each in (number, number + 1))
            batches = wire.read(OffsetRange(stream, low, high), COLUMNS)
            start = next(batches)
            with pyarrow.parquet.ParquetWriter(folder / f"{number}.parquet", start.schema) as out:
                out.write_batch(start)
                for batch in batches:
                    out.write_batch(batch)


def costs(make: Callable[[], DataFrame]) -> tuple[float, float]:
    """Return CPU seconds of this process tree, and wall seconds, of reading every row."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    make().write.format("noop").mode("overwrite").save()
    return cpu_seconds() - cpu, time.perf_counter() - wall


def cpu_seconds() -> float:
    """Return the CPU seconds of the whole tree; an ended process counts in its parent."""
    found = dict(processes())
    own = {os.getpid()}
    while True:
        more = {pid for pid, (parent, _) in found.items() if parent in own} - own
        if not more:
            return sum(found[pid][1] for pid in own if pid in found)
        own |= more


def processes() -> Iterator[tuple[int, tuple[int, float]]]:
    """Yield each process with its parent and the CPU seconds of itself and of its ended children."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        yield int(stat.parent.name), (int(fields[1]), sum(map(int, fields[11:15])) / TICKS_PER_SECOND)


def overhead(spark: SparkSession, uri: str, stream: str, folder: Path) -> dict[str, float]:
    """Return medians of Spark's trigger times. The source does not wait for messages, which is no cost."""
    rate = spark.readStream.format("rate").option("rowsPerSecond", BATCH_ROWS).load()
    options = {"uri": uri, "stream": stream, "pollTimeoutMs": "0", "columns": "offset,body"}
    rows = spark.readStream.format("penstock").options(**options).load()
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


def publish(uri: str, stream: str, over: threading.Event) -> None:
    with penstock.connect(uri, native=False) as connection:
        while not over.wait(0.5):
            connection.stream(stream).publish_many([b"x"] * BATCH_ROWS)


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


def main(what: str, uri: str, stream: str, folder: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name, value in (("host", "127.0.0.1"), ("bindAddress", "127.0.0.1"), ("memory", "1g")):
        builder = builder.config(f"spark.driver.{name}", value)
    spark = builder.config("spark.local.dir", folder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        found = {"read": read, "overhead": overhead}[what](spark, uri, stream, Path(folder))
    finally:
        spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
