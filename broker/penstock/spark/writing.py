"""Batch and streaming writing: a row becomes a message, and a task that is repeated stores nothing twice.

Every task publishes under a name of its own and numbers its rows; the broker keeps the highest number that it stored of
each name. A repeated task repeats its numbers, so it must have the same rows in the same order: true when the query has
no shuffle, or one that gives the same order each time. With the option `staged` that does not matter; see `staging`.
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
from penstock.spark.columns import conformed, published_schema
from penstock.spark.errors import SparkConnectorError
from penstock.spark.options import WriteOptions
from penstock.spark.staging import Staged, delete_stage, discard_staged, publish_staged, stage_rows
from penstock.spark.wire import Wire

__all__ = ["BatchWriter", "MicroBatchWriter"]

# A batch's rows are numbered within 32 bits: so many rows a task.
SEQUENCE_SHIFT = 32
# A batch write is the only batch of its stage.
ONLY_BATCH = 1


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    rows: int
    unroutable: int


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Its name is drawn when Spark plans the writing, unless `producer` gives one that is kept for the next try."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        published_schema(to_arrow_schema(schema, timezone="UTC"))
        self._producer = options.producer or f"spark/{uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written | Staged:
        if self._options.staged:
            return stage_rows(iterator, self._options, self._producer, ONLY_BATCH)
        return publish(iterator, self._options, f"{self._producer}/{task().partitionId()}", 1)

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
        """A name that was given is kept: the job may be sent again."""
        if not self._options.producer:
            delete_stage(self._options, self._producer)


class MicroBatchWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Named by the query's id, which its checkpoint keeps; numbered by the batch's."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        published_schema(to_arrow_schema(schema, timezone="UTC"))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written | Staged:
        context = task()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise SparkConnectorError("Spark did not say which query and batch this is; PySpark 4.2 or newer is needed")
        if self._options.staged:
            return stage_rows(iterator, self._options, self._options.producer or query, int(batch))
        producer = f"{self._options.producer or query}/{context.partitionId()}"
        return publish(iterator, self._options, producer, (int(batch) << SEQUENCE_SHIFT) + 1)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (named by Spark)
        if self._options.staged:
            publish_staged(self._options, messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if self._options.staged:
            discard_staged(self._options, messages, batchId)


def task() -> Any:
    context = TaskContext.get()
    if context is None:
        raise SparkConnectorError("this writes from within a task of Spark only")
    return context


def publish(batches: Iterator[pa.RecordBatch], options: WriteOptions, producer: str, sequence: int) -> Written:
    """All batches of a task, once however often it is called. Returns when the broker confirmed the last."""
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
    with Wire(options.uri) as wire:
        answer = wire.put(command, schema, (conformed(batch, schema) for batch in chain([first], batches)))
    return Written(answer.get("confirmed", 0), answer.get("unroutable", 0))
