"""Rows about Spark: a stream read as a table beside Parquet, and a micro-batch beside Spark's rate source.

Both sides of a figure are of the same run, in the same session. Spark runs in a process of its own, `bench.spark_work`;
this module does not need PySpark. `--backlog` makes the table smaller: it has half as many rows. Kafka's source is
measured only where its package is in Spark's jars.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import penstock
from bench.measure import Load
from bench.rows import Figure, Row, cpu, most, rate
from bench.stream_rows import BODY_BYTES, CHUNK, SECTION, STREAM
from penstock.spark.interpreter import write_interpreter

__all__ = ["SPARK_ROWS", "is_spark_there"]

SECONDS_MAX = 3_600


def is_spark_there() -> bool:
    return find_spec("pyspark") is not None


def read_table(load: Load) -> dict[str, float]:
    """Read rows of 100 random bytes (offset, timestamp and body) into Spark's rows and discard them."""
    count = load.backlog // 2
    draw = random.Random(1)
    with penstock.connect(load.uri, level=load.level) as connection:
        connection.declare_stream(STREAM)
        stream = connection.stream(STREAM)
        for _ in range(max(1, count // CHUNK)):
            stream.publish_many([draw.randbytes(BODY_BYTES) for _ in range(CHUNK)])
        rows = stream.info().message_count
    figures: dict[str, float] = {}
    with load.counting_cpu(figures, lambda: rows):
        found = worked(load, "read")
    # It reads more than once; the broker's time is for one read.
    return {**found, "broker_cpu_us": figures["broker_cpu_us"] / found["readings"], "rate": rows / found["wall"]}


def micro_batch(load: Load) -> dict[str, float]:
    """Read ten rows every half second and discard them."""
    with penstock.connect(load.uri) as connection:
        connection.declare_stream(STREAM)
    return worked(load, "overhead")


def worked(load: Load, what: str) -> dict[str, float]:
    """Return the figures of a process that runs Spark."""
    with tempfile.TemporaryDirectory(dir=load.broker.data_dir.parent) as folder:
        environment = {**os.environ, "PYSPARK_PYTHON": write_interpreter(Path(folder))}
        command = [sys.executable, "-m", "bench.spark_work", what, load.uri, STREAM, folder]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, check=True, timeout=SECONDS_MAX, stderr=subprocess.DEVNULL
        )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


SPARK_ROWS = (
    Row(
        "spark-read",
        "Spark reads a stream as a table, 5 M rows of 100 B (or half of --backlog), two tasks, beside Parquet",
        (
            most("cpu_ratio", "times Parquet's CPU seconds", 2),
            most("spark_cpu", "CPU s of JVM and workers"),
            most("parquet_cpu", "CPU s, Parquet"),
            rate(None),
            cpu(),
        ),
        read_table,
        "os",
        SECTION,
    ),
    Row(
        "spark-micro-batch",
        "a micro-batch of ten rows beside one of Spark's rate source",
        (
            most("overhead", "ms more than the rate source", 150),
            Figure("source", "ms", lower_is_better=True),
            Figure("rate_source", "ms", lower_is_better=True),
        ),
        micro_batch,
        "os",
        SECTION,
    ),
)
