"""Batch and streaming writes: a row becomes a message, and a repeated task stores nothing twice.

Every task publishes under its own producer name and numbers its rows; the broker keeps the highest sequence of each
name. A repeated task repeats its sequences, so it must have the same rows in the same order. That holds when the query
has no shuffle, or one that keeps the order. With the option `staged` it is not needed; see `staging`.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.client.errors import PenstockError
from penstock.spark.columns import check_published, conformed, publishable, published_schema
from penstock.spark.errors import SparkConnectorError
from penstock.spark.options import WriteOptions
from penstock.spark.staging import Staged, delete_stage, discard_staged, publish_staged, stage_rows
from penstock.spark.wire import Wire

__all__ = ["BatchWriter", "MicroBatchWriter"]

# Rows of a batch have 32-bit numbers, which bounds the rows of a task.
SEQUENCE_SHIFT = 32
# A batch write is the only batch of its stage.
ONLY_BATCH = 1


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    rows: int
    unroutable: int


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Batch writer. Spark's planning draws its name, unless `producer` sets one that is kept for a retry."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        check_published(to_arrow_schema(schema, timezone="UTC"), options)
        self._producer = options.producer or f"spark/{uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written | Staged:
        rows = publishable(iterator, self._options)
        if self._options.staged:
            return stage_rows(rows, self._options, self._producer, ONLY_BATCH)
        return publish(rows, self._options, f"{self._producer}/{task().partitionId()}", 1)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.staged:
            publish_staged(self._options, messages, ONLY_BATCH)
            self._forget_drawn()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.staged:
            discard_staged(self._options, messages, ONLY_BATCH)
            with suppress(PenstockError):
                self._forget_drawn()

    def _forget_drawn(self) -> None:
        """Forget a drawn name. A name from the options is kept: the job may be repeated."""
        if not self._options.producer:
            delete_stage(self._options, self._producer)


class MicroBatchWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Streaming writer, named by the query's id from its Spark checkpoint and numbered by batch."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        check_published(to_arrow_schema(schema, timezone="UTC"), options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written | Staged:
        context = task()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise SparkConnectorError("Spark did not say which query and batch this is; PySpark 4.2 or newer is needed")
        rows = publishable(iterator, self._options)
        if self._options.staged:
            return stage_rows(rows, self._options, self._options.producer or query, int(batch))
        producer = f"{self._options.producer or query}/{context.partitionId()}"
        return publish(rows, self._options, producer, (int(batch) << SEQUENCE_SHIFT) + 1)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (named by Spark)
        if self._options.staged:
            publish_staged(self._options, messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if self._options.staged:
            discard_staged(self._options, messages, batchId)


def task() -> Any:
    context = TaskContext.get()
    if context is None:
        raise SparkConnectorError("this can only run inside a Spark task")
    return context


def publish(batches: Iterator[pa.RecordBatch], options: WriteOptions, producer: str, sequence: int) -> Written:
    """Publish all batches of a task once, even when called again. Returns when the broker confirmed the last."""
    first = next(batches, None)
    if first is None:
        return Written(0, 0)
    command: dict[str, Any] = {"producer": producer, "sequence": sequence}
    if options.exchange is None:
        command["stream"] = options.stream
    else:
        command |= {"exchange": options.exchange, "routing_key": options.routing_key}
    if options.level:
        command["level"] = options.level
    schema = published_schema(first.schema)
    with Wire(options.uri, options.retry_seconds) as wire:
        answer = wire.put(command, schema, (conformed(batch, schema) for batch in chain([first], batches)))
    return Written(answer.get("confirmed", 0), answer.get("unroutable", 0))
