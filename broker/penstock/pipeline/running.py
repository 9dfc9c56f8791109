"""Runs a pipeline: a Structured Streaming query with its own Spark checkpoint for each sink, and a summary at the end.

This module does not validate: the document was checked before.
"""

import os
import re
import signal
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Event, current_thread, main_thread
from time import monotonic

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.pipeline.document import Pipeline
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.kept_targets import check_kept_target
from penstock.pipeline.plans import keeps_order, plan_of
from penstock.pipeline.scratch import scratch_folder
from penstock.pipeline.sinks import into, source_options
from penstock.pipeline.summary import Limits, Note, Summary
from penstock.spark.interpreter import write_interpreter
from penstock.spark.lag import LagListener
from penstock.spark.lags import lags_of

__all__ = ["run_pipeline"]

# The interval of progress checks; Spark keeps the progress of the last 100 batches.
LOOK_SECONDS = 0.5
# The last line of a traceback, when the connector raised the error.
OWN_ERROR = re.compile(r"^penstock\.spark\.errors\.\w+: (.+)$", re.MULTILINE)


@dataclass
class Count:
    """Progress seen of one query."""

    rows: int = 0
    batches: int = 0
    newest: int = -1


def run_pipeline(pipeline: Pipeline, master: str, note: Note, limits: Limits, stopping: Event) -> Summary:
    """Run until a triggered pipeline has read its stream, a continuous one reaches its limits, or `stopping` is set.

    Raises PipelineError.
    """
    note(f"starting Spark ({master})")
    spark = session(pipeline, master)
    listener = None
    try:
        if pipeline.metrics is not None:
            listener = LagListener(pipeline.metrics[1], pipeline.metrics[0])
            spark.streams.addListener(listener)
        numbers = list(range(len(pipeline.sinks)))
        # Triggered queries run one after another: Spark allows each of a query's Python processes ten seconds to start,
        # which is too short on a small machine for several queries at once.
        together = [numbers] if pipeline.mode == "continuous" else [[number] for number in numbers]
        summary = Summary()
        for some in together:
            if not stopping.is_set():
                queries = [started(spark, pipeline, number) for number in some]
                followed(queries, summary, note, limits, stopping)
        return summary
    finally:
        spark.stop()
        if listener is not None:
            listener.close()


def session(pipeline: Pipeline, master: str) -> SparkSession:
    """Return a Spark session whose workers run this Python, with this process's import path."""
    if master.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = interpreter()
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, sys.path)))
    builder = SparkSession.builder.master(master).appName(pipeline.name)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A micro-batch on one machine has few rows, and each partition of a shuffle is a task.
        "spark.sql.shuffle.partitions": "2",
        **pipeline.spark,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    # Spark replaces the process's handler of interruptions by its own.
    before = signal.getsignal(signal.SIGINT)
    spark = builder.getOrCreate()
    if current_thread() is main_thread():
        signal.signal(signal.SIGINT, before)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@cache
def interpreter() -> str:
    """Return the interpreter, one per process: a second session shares the first one's JVM and its environment."""
    return write_interpreter(scratch_folder())


def transformed(spark: SparkSession, pipeline: Pipeline, number: int) -> DataFrame:
    """Return the rows for a sink. Each sink has a source of its own, as only the first publishes bad records."""
    for table in pipeline.tables:
        spark.read.format(table.format).options(**table.options).load(table.path).createOrReplaceTempView(table.name)
    source = spark.readStream.format("penstock").options(**source_options(pipeline, number)).load()
    if pipeline.watermark is not None:
        source = watermarked(source, *pipeline.watermark)
    source.createOrReplaceTempView("source")
    result = spark.sql(pipeline.sql) if pipeline.python is None else by_python(spark, pipeline.python, source)
    result.createOrReplaceTempView("result")
    return result


def watermarked(source: DataFrame, column: str, delay: str) -> DataFrame:
    """Return the source with a watermark.

    Spark takes columns only: a field of one becomes a column with its own name.
    """
    _, is_field, name = column.rpartition(".")
    return (source.withColumn(name, source[column]) if is_field else source).withWatermark(name, delay)


def by_python(spark: SparkSession, file: Path, source: DataFrame) -> DataFrame:
    spec = spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise PipelineError(f"python: {file} cannot be imported")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: DataFrame = module.transform(spark, source)
    return found


def started(spark: SparkSession, pipeline: Pipeline, number: int) -> StreamingQuery:
    sink = pipeline.sinks[number]
    check_kept_target(spark, pipeline.checkpoint, number, sink)
    result = transformed(spark, pipeline, number)
    rows = spark.sql(sink.select) if sink.select else result
    if sink.needs_order and not keeps_order(plan_of(rows)):
        raise PipelineError(
            f"sinks[{number}]: 'staged: false' is for transformations that only select, filter and map rows; after a "
            "join or an aggregate a task that Spark repeats could lose rows and store others twice; leave 'staged' out"
        )
    writer = (
        rows.writeStream.queryName(f"{pipeline.name}-{number}")
        .outputMode(sink.output_mode)
        .option("checkpointLocation", f"{pipeline.checkpoint}/{number}")
    )
    if pipeline.mode == "triggered":
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=pipeline.interval)
    return into(writer, sink).start()


def followed(queries: list[StreamingQuery], summary: Summary, note: Note, limits: Limits, stopping: Event) -> None:
    """Report every batch once and add it up; raise the plain text of a query's failure.

    A batch that is cut short by a stop is not counted: the next run repeats it.
    """
    counts = [Count() for _ in queries]
    begun = monotonic()
    try:
        while True:
            is_active = any(query.isActive for query in queries)
            for query, count in zip(queries, counts, strict=True):
                look(query, count, note)
            is_over = limits.are_reached([count.batches for count in counts], monotonic() - begun)
            if not is_active or is_over or stopping.is_set():
                break
            next((query for query in queries if query.isActive), queries[0]).awaitTermination(LOOK_SECONDS)
        if is_active:
            note("stopping")
    except StreamingQueryException as error:
        raise PipelineError(reason(error)) from error
    finally:
        for query in queries:
            query.stop()
    for query, count in zip(queries, counts, strict=True):
        failed = query.exception()
        if failed is not None:
            raise PipelineError(reason(failed))
        look(query, count, note)
        summary.add(str(query.name), count.rows, count.batches)
    summary.seconds += monotonic() - begun


def reason(error: object) -> str:
    """Return the cause of a query's failure, without the plans and the traceback that Spark adds."""
    text = str(error).partition("=== Streaming Query ===")[0].strip()
    own = OWN_ERROR.findall(text)
    return str(own[-1]).strip() if own else text


def look(query: StreamingQuery, count: Count, note: Note) -> None:
    """Report a query's progress since the last call."""
    for progress in query.recentProgress:
        if progress.batchId > count.newest and progress.numInputRows:
            count.rows += progress.numInputRows
            count.batches += 1
            count.newest = progress.batchId
            rate = progress.processedRowsPerSecond
            lags = lags_of((source.endOffset, source.latestOffset) for source in progress.sources)
            behind = f", {sum(lag.rows for lag in lags):,} rows behind" if lags else ""
            note(f"{query.name}: batch {progress.batchId}, {progress.numInputRows:,} rows, {rate:,.0f} rows/s{behind}")
