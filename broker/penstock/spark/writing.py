"""Batch and streaming writes: a row becomes a message, and a repeated task stores nothing twice.

Every task publishes under its own producer name, which is bound to the target, and says which batch its rows are. The
broker stores a batch once: repeated rows are compared with the stored ones, and other rows are refused. So a repeated
task must have the same rows in the same order. That holds when the query has no shuffle, or one that keeps the order.
With the option `staged` the order does not matter; see `staging`.
"""

import logging
from collections.abc import Iterator, Sequence
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
from penstock.spark.errors import OptionError, SparkConnectorError
from penstock.spark.names import bound_name, task_name, task_names
from penstock.spark.options import WriteOptions
from penstock.spark.staging import Staged, delete_stage, discard_staged, publish_staged, stage_rows
from penstock.spark.wire import Wire

__all__ = ["BatchWriter", "MicroBatchWriter"]

logger = logging.getLogger(__name__)

# A batch write without a version is the only batch of its name.
ONLY_BATCH = 1


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """The result of a task. Repeated rows were stored by an earlier attempt, and are among `rows`."""

    rows: int
    unroutable: int
    repeated: int


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Batch writer. Spark's planning draws its name, unless `producer` or `txnAppId` sets one, which is kept."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        check_published(to_arrow_schema(schema, timezone="UTC"), options)
        kept = options.producer or options.txn_app_id
        self._is_drawn = not kept
        self._name = bound_name(kept or f"spark/{uuid4().hex}", options)
        self._batch = ONLY_BATCH if options.txn_version is None else options.txn_version

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written | Staged:
        rows = publishable(iterator, self._options)
        if self._options.staged:
            return stage_rows(rows, self._options, self._name, self._batch)
        return publish(rows, self._options, task_name(self._name, task().partitionId()), self._batch)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.staged:
            log_repeated(self._name, self._batch, publish_staged(self._options, messages, self._name, self._batch))
        else:
            log_repeated(self._name, self._batch, repeated_in(messages))
        self._forget_drawn(len(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.staged:
            discard_staged(self._options, messages, self._name, self._batch)
        self._forget_drawn(len(messages))

    def _forget_drawn(self, tasks: int) -> None:
        """Forget drawn names: no task is repeated any more. A name from the options is kept: the job may be.

        A name that is left does no harm, and a failed job would be repeated.
        """
        if not self._is_drawn:
            return
        try:
            if self._options.staged:
                delete_stage(self._options, self._name)
                return
            with Wire(self._options.uri, self._options.retry_seconds) as wire:
                wire.end_producers(task_names(self._name, tasks))
        except (PenstockError, SparkConnectorError) as error:
            logger.warning("names '%s' of a write that is over are left in the broker: %s", self._name, error)


class MicroBatchWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Streaming writer, named by the query's id from its Spark checkpoint and numbered by batch."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        if options.txn_app_id:
            raise OptionError("'txnAppId' and 'txnVersion' are for write, in foreachBatch; a query numbers its batches")
        self._options = options
        check_published(to_arrow_schema(schema, timezone="UTC"), options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written | Staged:
        context = task()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise SparkConnectorError("Spark did not say which query and batch this is; PySpark 4.2 or newer is needed")
        name = bound_name(self._options.producer or query, self._options)
        rows = publishable(iterator, self._options)
        if self._options.staged:
            return stage_rows(rows, self._options, name, int(batch))
        return publish(rows, self._options, task_name(name, context.partitionId()), int(batch))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (named by Spark)
        name = self._options.producer or "of this query"
        if self._options.staged:
            stages = {message.stage for message in messages if isinstance(message, Staged) and message.stage}
            for stage in stages:
                log_repeated(name, batchId, publish_staged(self._options, messages, stage, batchId))
        else:
            log_repeated(name, batchId, repeated_in(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if self._options.staged:
            for stage in {message.stage for message in messages if isinstance(message, Staged) and message.stage}:
                discard_staged(self._options, messages, stage, batchId)


def task() -> Any:
    context = TaskContext.get()
    if context is None:
        raise SparkConnectorError("this can only run inside a Spark task")
    return context


def repeated_in(messages: Sequence[WriterCommitMessage | None]) -> int:
    return sum(message.repeated for message in messages if isinstance(message, Written))


def log_repeated(name: str, batch: int, rows: int) -> None:
    if rows:
        logger.warning("producer '%s': %d rows of batch %d were stored before and not stored again", name, rows, batch)


def publish(batches: Iterator[pa.RecordBatch], options: WriteOptions, producer: str, batch: int) -> Written:
    """Publish all batches of a task once, even when called again. Returns when the broker confirmed the last."""
    command: dict[str, Any] = {"producer": producer, "batch": batch}
    if options.exchange is None:
        command["stream"] = options.stream
    else:
        command |= {"exchange": options.exchange, "routing_key": options.routing_key}
    first = next(batches, None)
    with Wire(options.uri, options.retry_seconds) as wire:
        if first is None:
            # An earlier attempt may have stored rows.
            wire.put_nothing(command)
            return Written(0, 0, 0)
        if options.durability:
            command["durability"] = options.durability
        schema = published_schema(first.schema)
        answer = wire.put(command, schema, (conformed(rows, schema) for rows in chain([first], batches)))
    return Written(answer.get("confirmed", 0), answer.get("unroutable", 0), answer.get("repeated", 0))
