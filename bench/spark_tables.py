"""Questions about a table of rows, asked in turn of a stream and of Parquet files with the same rows, in one session.

Both have the same columns. The bodies do not compress, so that neither side reads fewer bytes.
"""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json, max  # noqa: A004 (Spark's)

from bench.spark_cpu import cpu_seconds
from bench.spark_rows import JSON_FIELDS
from penstock.spark.ranges import OffsetRange
from penstock.spark.wire import Wire

__all__ = ["QUESTIONS", "asked"]

FILES = 2
ROUNDS = 3


class Question(NamedTuple):
    """What is asked of both tables. The stream's has only the columns named, as a user would name them."""

    columns: tuple[str, ...]
    of_stream: Callable[[DataFrame], object]
    of_parquet: Callable[[DataFrame], object]
    options: tuple[tuple[str, str], ...] = ()


def read_all(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def grouped(rows: DataFrame) -> None:
    rows.groupBy("key").agg(max("offset"), max("timestamp")).collect()


def parsed(rows: DataFrame) -> None:
    value = from_json(col("body").cast("string"), JSON_FIELDS)
    read_all(rows.select(value.alias("value")).select("value.*"))


QUESTIONS = {
    "read": Question(("offset", "timestamp", "body"), read_all, read_all),
    "count": Question(("offset",), DataFrame.count, lambda rows: rows.agg(max("offset")).collect()),
    "groups": Question(("key", "offset", "timestamp"), grouped, grouped),
    "json": Question(
        ("body",),
        lambda rows: read_all(rows.select("value.*")),
        parsed,
        (("parsed", "json"), ("parsedSchema", JSON_FIELDS), ("columns", "offset")),
    ),
}


def asked(spark: SparkSession, question: Question, uri: str, stream: str, folder: Path) -> dict[str, float]:
    """Return the medians of some rounds of Parquet and stream in turn, after a round to warm up."""
    write_parquet(uri, stream, question.columns, folder / "table")

    def of_parquet() -> None:
        question.of_parquet(spark.read.parquet(str(folder / "table")))

    def of_stream() -> None:
        options = {"uri": uri, "stream": stream, "columns": ",".join(question.columns), **dict(question.options)}
        question.of_stream(spark.read.format("penstock").options(**options).load())

    rounds = [(costs(of_parquet), costs(of_stream)) for _ in range(ROUNDS + 1)][1:]
    parquet, ours = ([median(each[side][figure] for each in rounds) for figure in (0, 1)] for side in (0, 1))
    return {
        "cpu_ratio": ours[0] / parquet[0],
        "time_ratio": ours[1] / parquet[1],
        "spark_cpu": ours[0],
        "parquet_cpu": parquet[0],
        "wall": ours[1],
        "parquet_wall": parquet[1],
        # The rows were read once more, to write the files.
        "readings": ROUNDS + 2,
    }


def write_parquet(uri: str, stream: str, columns: tuple[str, ...], folder: Path) -> None:
    """Write the stream's rows as Parquet."""
    folder.mkdir()
    with Wire(uri) as wire:
        there = wire.describe((stream,))[stream]
        first, end = there.first, there.next
        for number in range(FILES):
            low, high = (first + (end - first) * each // FILES for each in (number, number + 1))
            batches = wire.read(OffsetRange(stream, low, high), tuple(dict.fromkeys((*columns, "offset"))))
            start = next(batches)
            with pyarrow.parquet.ParquetWriter(folder / f"{number}.parquet", start.schema) as out:
                out.write_batch(start)
                for batch in batches:
                    out.write_batch(batch)


def costs(ask: Callable[[], None]) -> tuple[float, float]:
    """Return CPU seconds of this process tree, and wall seconds."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    ask()
    return cpu_seconds() - cpu, time.perf_counter() - wall
