"""Writes with `staged`: tasks stage their rows, and the driver's commit publishes one attempt of each in one step.

A repeated task may stage its rows in another order: consumers see none until the driver has chosen. The broker never
decides a batch twice, so a driver that died after the commit finds its batch published. A decided batch that comes
again with other rows is refused.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from time import monotonic, sleep
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from penstock.client.errors import ConnectionLostError, DeadlineError, NotFoundError, PenstockError
from penstock.client.stage import Stage
from penstock.client.staging import Attempt
from penstock.client.sync import Connection, connect
from penstock.spark.calls import PAUSE_SECONDS
from penstock.spark.columns import conformed, published_schema
from penstock.spark.options import WriteOptions
from penstock.spark.wire import Wire

__all__ = ["Staged", "delete_stage", "discard_staged", "publish_staged", "stage_rows"]

T = TypeVar("T")


@dataclass
class Staged(WriterCommitMessage):  # type: ignore[misc]
    """The result of a task, perhaps without rows."""

    stage: str
    attempt: int
    rows: int


def stage_rows(batches: Iterator[pa.RecordBatch], options: WriteOptions, stage: str, batch: int) -> Staged:
    """Stage all rows of a task as one attempt. Returns when they are on the broker's disk."""
    first = next(batches, None)
    if first is None:
        return Staged(stage, 0, 0)
    command: dict[str, Any] = {"stage": stage, "batch": batch}
    if options.exchange is None:
        command["stream"] = options.stream
    else:
        command |= {"exchange": options.exchange, "routing_key": options.routing_key}
    schema = published_schema(first.schema)
    with Wire(options.uri, options.retry_seconds) as wire:
        answer = wire.put(command, schema, (conformed(rows, schema) for rows in chain([first], batches)))
    return Staged(stage, answer.get("attempt", 0), answer.get("confirmed", 0))


def publish_staged(options: WriteOptions, messages: Sequence[WriterCommitMessage | None], name: str, batch: int) -> int:
    """Publish the rows that the tasks of a batch staged; return how many were published before.

    The broker carries on by itself when the answer takes long or is lost; ask again to learn the result. A batch
    without rows is published too, because it may have had some the first time, unless there is no stage.
    """
    attempts = attempts_of(messages)

    def publish(connection: Connection) -> int:
        if not attempts and all(stage.name != name for stage in connection.admin.list_stages()):
            return 0
        published = stage_of(connection, options, name).publish(batch, attempts)
        return sum(attempt.count for attempt in attempts) if published.was_decided else 0

    return asked_again(options, publish)


def discard_staged(
    options: WriteOptions, messages: Sequence[WriterCommitMessage | None], name: str, batch: int
) -> None:
    """Drop the rows that the tasks of a failed batch staged. The next batch drops the remainder."""
    if attempts := attempts_of(messages):
        with suppress(PenstockError), connect(options.uri, native=False) as connection:
            stage_of(connection, options, name).discard(batch, attempts)


def delete_stage(options: WriteOptions, name: str) -> None:
    """Delete the stage of a job that is over and cannot be repeated; no task that still runs makes it anew."""

    def delete(connection: Connection) -> None:
        with suppress(NotFoundError):  # no task had rows
            connection.admin.delete_stage(name, ended=True)

    asked_again(options, delete)


def attempts_of(messages: Sequence[WriterCommitMessage | None]) -> list[Attempt]:
    """Return the attempts that have rows."""
    staged = [message for message in messages if isinstance(message, Staged) and message.rows]
    return [Attempt(message.attempt, message.rows) for message in staged]


def stage_of(connection: Connection, options: WriteOptions, name: str) -> Stage:
    if options.exchange is None:
        return connection.stage(name, stream=options.stream)
    return connection.stage(name, exchange=options.exchange, routing_key=options.routing_key)


def asked_again(options: WriteOptions, call: Callable[[Connection], T]) -> T:
    """Retry for a while from the first failure in a row, and as long as a broker that greets is still working."""
    give_up: float | None = None
    while True:
        is_connected = False
        try:
            with connect(options.uri, native=False) as connection:
                is_connected = True
                return call(connection)
        except (ConnectionLostError, DeadlineError) as error:
            if is_connected and isinstance(error, DeadlineError):
                give_up = None
                continue
            give_up = give_up or monotonic() + options.retry_seconds
            if monotonic() >= give_up:
                raise
            sleep(PAUSE_SECONDS)
