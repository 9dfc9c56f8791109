"""Sinks: Spark's own streaming writers, and sinks that take one micro-batch at a time.

A Delta Lake table stores with every batch the query and the batch's number, so a repeated batch is skipped. A JDBC sink
stores nothing of the kind.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter

from penstock.pipeline.document import Pipeline, Sink
from penstock.pipeline.errors import PipelineError

__all__ = ["into", "source_options"]

# The driver holds a whole batch for Delta in memory, more than once.
DELTA_BYTES_MAX = 64 * 2**20
DEAD_LETTERS = "deadletterstream"
LIMITS = ("maxoffsetspertrigger", "maxbytespertrigger")

Append = Callable[[DataFrame, int], None]


def source_options(pipeline: Pipeline, number: int) -> dict[str, str]:
    """Return the source's options for a sink, with a limit per batch where one needs it and the document sets none.

    Every sink reads the stream by itself, and each bad record is to be published once: by the first.
    """
    options = dict(pipeline.source)
    if number > 0 and any(name.lower() == DEAD_LETTERS for name in options):
        options = {name: value for name, value in options.items() if name.lower() != DEAD_LETTERS}
        options["dropBadRecords"] = "true"
    is_bounded = any(name.lower() in LIMITS for name in options)
    if not is_bounded and any(sink.format == "delta" for sink in pipeline.sinks):
        options["maxBytesPerTrigger"] = str(DELTA_BYTES_MAX)
    return options


def into(writer: DataStreamWriter, sink: Sink) -> DataStreamWriter:
    if sink.format == "jdbc":
        return writer.foreachBatch(jdbc(sink.options))
    if sink.format == "delta":
        return writer.foreachBatch(delta(sink.options))
    return writer.format(sink.format).options(**sink.options)


def jdbc(options: Mapping[str, str]) -> Append:
    def append(batch: DataFrame, _: int) -> None:
        batch.write.format("jdbc").mode("append").options(**options).save()

    return append


def delta(options: Mapping[str, str]) -> Append:
    """Return a writer that needs no Delta Java package, whose releases lag behind Spark's.

    Other options go to the object store.
    """
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    path = options["path"]
    storage = {name: value for name, value in options.items() if name != "path"} or None

    def append(batch: DataFrame, number: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if query is None:
            raise PipelineError("Spark did not say which query this is; PySpark 4.2 or newer is needed")
        if DeltaTable.is_deltatable(path, storage_options=storage):
            stored = DeltaTable(path, storage_options=storage).transaction_version(query)
            if stored is not None and stored >= number:
                return
        once = CommitProperties(app_transactions=[Transaction(query, number)])
        rows = in_utc(batch.toArrow())
        write_deltalake(path, rows, mode="append", storage_options=storage, commit_properties=once)

    return append


def in_utc(rows: pa.Table) -> pa.Table:
    """Return the rows with times in UTC, the only zone of Delta; the moments are the same."""
    schema = pa.schema(
        [
            field.with_type(pa.timestamp("us", "UTC"))
            if pa.types.is_timestamp(field.type) and field.type.tz is not None
            else field
            for field in rows.schema
        ]
    )
    found: Any = rows.cast(schema)
    return found
