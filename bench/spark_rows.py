"""Rows about Spark: a stream read as a table beside Parquet, and followed as a query beside Spark's rate source.

Both sides of a figure are of the same run, in the same session. Spark runs in a process of its own, `bench.spark_work`;
this module does not need PySpark. `--backlog` makes the tables smaller: they have half as many rows.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from time import sleep

import pyarrow as pa

import penstock
from bench.measure import Load
from bench.rows import Figure, Row, cpu, most, rate
from bench.stream_rows import BODY_BYTES, SECTION, STREAM
from penstock.spark.interpreter import write_interpreter
from penstock.spark.wire import Wire

__all__ = ["JSON_FIELDS", "SPARK_ROWS", "is_spark_there"]

SECONDS_MAX = 3_600
KEYS = 1_000
PUT_ROWS = 20_000
JSON_FIELDS = "id BIGINT, name STRING, score DOUBLE, at TIMESTAMP"


def is_spark_there() -> bool:
    return find_spec("pyspark") is not None


def random_bodies(draw: random.Random) -> list[bytes]:
    return [draw.randbytes(BODY_BYTES) for _ in range(PUT_ROWS)]


def json_bodies(draw: random.Random) -> list[bytes]:
    """Return objects of about a hundred bytes."""
    return [
        f'{{"id":{draw.getrandbits(40)},"name":"{draw.randbytes(12).hex()}","score":{draw.random():.6f},'
        f'"at":"2026-01-31T12:{draw.randrange(60):02}:{draw.random() * 59:09.6f}Z"}}'.encode()
        for _ in range(PUT_ROWS)
    ]


def table(what: str, bodies: Callable[[random.Random], list[bytes]]) -> Callable[[Load], dict[str, float]]:
    """Return a measurement that asks a stream and Parquet files with the same rows the same question."""

    def measure(load: Load) -> dict[str, float]:
        rows = publish(load, bodies)
        figures: dict[str, float] = {}
        with load.counting_cpu(figures, lambda: rows):
            found = worked(load, what)
        # It reads more than once; the broker's time is for one read.
        return {**found, "broker_cpu_us": figures["broker_cpu_us"] / found["readings"], "rate": rows / found["wall"]}

    return measure


def publish(load: Load, bodies: Callable[[random.Random], list[bytes]]) -> int:
    """Publish the rows of a table with keys; return their number. No batch has a body of another."""
    count = max(1, load.backlog // 2 // PUT_ROWS) * PUT_ROWS
    with penstock.connect(load.uri) as connection:
        connection.declare_stream(STREAM)
    schema = pa.schema([("body", pa.binary()), ("key", pa.binary())])
    keys = pa.array([f"key-{number % KEYS}".encode() for number in range(PUT_ROWS)], pa.binary())

    def batches() -> Iterator[pa.RecordBatch]:
        draw = random.Random(1)
        for _ in range(count // PUT_ROWS):
            yield pa.RecordBatch.from_arrays([pa.array(bodies(draw), pa.binary()), keys], schema=schema)

    with Wire(load.uri) as wire:
        wire.put({"stream": STREAM, "durability": load.durability}, schema, batches())
    return count


def query(what: str) -> Callable[[Load], dict[str, float]]:
    """Return a measurement that follows a stream."""

    def measure(load: Load) -> dict[str, float]:
        with penstock.connect(load.uri) as connection:
            connection.declare_stream(STREAM)
        return worked(load, what)

    return measure


def idle_query(load: Load) -> dict[str, float]:
    """Return the broker's share of a core while a query has nothing to read."""
    found: dict[str, float] = {}
    folder = Path(tempfile.mkdtemp(dir=load.broker.data_dir.parent))
    with penstock.connect(load.uri) as connection:
        connection.declare_stream(STREAM)
    spark = threading.Thread(target=lambda: found.update(worked(load, "idle", folder)))
    spark.start()
    while spark.is_alive() and not (folder / "settled").exists():
        sleep(0.1)
    before = load.cpu_seconds()
    spark.join()
    return {"core_percent": (load.cpu_seconds() - before) / found["seconds"] * 100}


def worked(load: Load, what: str, folder: Path | None = None) -> dict[str, float]:
    """Return the figures of a process that runs Spark."""
    with tempfile.TemporaryDirectory(dir=load.broker.data_dir.parent) as own:
        place = str(folder or own)
        environment = {**os.environ, "PYSPARK_PYTHON": write_interpreter(Path(own))}
        command = [sys.executable, "-m", "bench.spark_work", what, load.uri, STREAM, place]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, check=True, timeout=SECONDS_MAX, stderr=subprocess.DEVNULL
        )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def costs(time_max: float | None, cpu_max: float | None) -> tuple[Figure, ...]:
    return (
        most("time_ratio", "times Parquet's time", time_max),
        most("cpu_ratio", "times Parquet's CPU seconds", cpu_max),
        most("wall", "s"),
        most("parquet_wall", "s, Parquet"),
        most("spark_cpu", "CPU s of JVM and workers"),
        most("parquet_cpu", "CPU s, Parquet"),
        rate(None),
        cpu(),
    )


def beside_rate_source(most_ms: float) -> tuple[Figure, ...]:
    return (
        most("overhead", "ms more than the rate source", most_ms),
        most("source", "ms"),
        most("rate_source", "ms"),
    )


TABLE = "5 M rows of 100 B (or half of --backlog)"

SPARK_ROWS = (
    Row(
        "spark-read",
        f"Spark reads a stream as a table, {TABLE}: offset, timestamp, body, beside Parquet",
        costs(None, 1.3),
        table("read", random_bodies),
        section=SECTION,
    ),
    Row(
        "spark-count",
        f"count() of {TABLE}, beside Parquet's scan of one column",
        costs(2, None),
        table("count", random_bodies),
        section=SECTION,
    ),
    Row(
        "spark-groups",
        f"the greatest offset and timestamp of each of {KEYS:,} keys of {TABLE}, beside Parquet",
        costs(2, None),
        table("groups", random_bodies),
        section=SECTION,
    ),
    Row(
        "spark-json",
        f"JSON of four fields with a schema, {TABLE}, beside from_json over Parquet",
        costs(2, None),
        table("json", json_bodies),
        section=SECTION,
    ),
    Row(
        "spark-micro-batch",
        "a micro-batch of ten rows beside one of Spark's rate source",
        beside_rate_source(150),
        query("overhead"),
        section=SECTION,
    ),
    Row(
        "spark-delay",
        "one row from publish to the driver's foreachBatch, beside one of Spark's rate source",
        beside_rate_source(60),
        query("delays"),
        section=SECTION,
    ),
    Row(
        "spark-idle",
        "the broker while a query has nothing to read",
        (most("core_percent", "% of a core", 0.2),),
        idle_query,
        section=SECTION,
    ),
)
