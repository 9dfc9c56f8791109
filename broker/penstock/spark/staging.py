"""Writing with `staged`: tasks stage their rows, and the driver's commit publishes one attempt of each, in one
decision of the broker.

What a repeated task brings may differ from the first time: nobody reads it before the driver has chosen. A batch that
the broker has decided is never decided again, so a driver that died after that finds its batch published.
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
from penstock.spark.columns import conformed, published_schema
from penstock.spark.options import WriteOptions
from penstock.spark.wire import UNAVAILABLE_PAUSE_SECONDS, UNAVAILABLE_SECONDS_MAX, Wire

__all__ = ["Staged", "delete_stage", "discard_staged", "publish_staged", "stage_rows"]

T = TypeVar("T")


@dataclass
class Staged(WriterCommitMessage):  # type: ignore[misc]
    """What a task staged; no stage when it had no rows."""

    stage: str
    attempt: int
    rows: int


def stage_rows(batches: Iterator[pa.RecordBatch], options: WriteOptions, stage: str, batch: int) -> Staged:
    """All rows of a task, as one attempt. Returns when they are on the broker's disk."""
    first = next(batches, None)
    if first is None:
        return Staged("", 0, 0)
    command: dict[str, Any] = {"stage": stage, "batch": batch}
    if options.exchange is None:
        command["stream"] = options.stream
    else:
        command |= {"exchange": options.exchange, "routing_key": options.routing_key}
    schema = published_schema(first.schema)
    with Wire(options.uri) as wire:
        answer = wire.put(command, schema, (conformed(rows, schema) for rows in chain([first], batches)))
    return Staged(stage, answer.get("attempt", 0), answer.get("confirmed", 0))


def publish_staged(options: WriteOptions, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
    """Publishes what the tasks of a batch staged. The broker carries on by itself when the answer takes long or gets
    lost; asking again is how one hears of the end."""
    attempts, name = attempts_of(messages)
    if attempts:
        asked_again(options, lambda connection: stage_of(connection, options, name).publish(batch, attempts))


def discard_staged(options: WriteOptions, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
    """Drops what the tasks of a failed batch staged. What is left the next batch takes along."""
    attempts, name = attempts_of(messages)
    if attempts:
        with suppress(PenstockError), connect(options.uri, native=False) as connection:
            stage_of(connection, options, name).discard(batch, attempts)


def delete_stage(options: WriteOptions, name: str) -> None:
    """Of a job that is over and that nobody can repeat."""

    def delete(connection: Connection) -> None:
        with suppress(NotFoundError):  # no task had rows
            connection.admin.delete_stage(name)

    asked_again(options, delete)


def attempts_of(messages: Sequence[WriterCommitMessage | None]) -> tuple[list[Attempt], str]:
    """Those with rows, and their stage."""
    staged = [message for message in messages if isinstance(message, Staged) and message.rows]
    return [Attempt(message.attempt, message.rows) for message in staged], staged[0].stage if staged else ""


def stage_of(connection: Connection, options: WriteOptions, name: str) -> Stage:
    if options.exchange is None:
        return connection.stage(name, stream=options.stream)
    return connection.stage(name, exchange=options.exchange, routing_key=options.routing_key)


def asked_again(options: WriteOptions, call: Callable[[Connection], T]) -> T:
    """Tries again while the broker cannot be reached, for a while, and as long as it is at work."""
    give_up = monotonic() + UNAVAILABLE_SECONDS_MAX
    while True:
        try:
            with connect(options.uri, native=False) as connection:
                return call(connection)
        except DeadlineError:
            give_up = monotonic() + UNAVAILABLE_SECONDS_MAX
        except ConnectionLostError:
            if monotonic() >= give_up:
                raise
            sleep(UNAVAILABLE_PAUSE_SECONDS)
