"""The staged writers as Spark calls them, without Spark: tasks stage, the driver commits or aborts, and repeats."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from time import monotonic
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import penstock
from penstock.client.errors import ConnectionLostError, DeadlineError
from penstock.spark import staging
from penstock.spark.errors import RefusedError
from penstock.spark.options import WriteOptions, parse_write_options
from penstock.spark.staging import Staged, stage_rows
from penstock.spark.writing import BatchWriter, MicroBatchWriter
from support import Broker

SCHEMA = StructType([StructField("body", BinaryType())])


@pytest.fixture
def options(broker: Broker, connection: penstock.Connection) -> WriteOptions:
    connection.declare_stream("staged-sink")
    return parse_write_options({"uri": broker.uri(), "stream": "staged-sink", "staged": "true"})


def task(options: WriteOptions, batch: int, *bodies: bytes) -> Staged:
    return stage_rows(iter([pa.record_batch({"body": list(bodies)})]), options, "a-query", batch)


def test_a_batch_that_the_driver_repeats_with_other_tasks_is_published_once(
    options: WriteOptions, connection: penstock.Connection
) -> None:
    writer = MicroBatchWriter(options, SCHEMA)
    empty = stage_rows(iter([]), options, "a-query", 0)
    task(options, 0, b"a", b"of a task that died")
    writer.commit([task(options, 0, b"a", b"b"), None, empty, task(options, 0, b"c")], 0)
    failed = [task(options, 1, b"d")]
    writer.abort(failed, 1)

    writer.commit([task(options, 0, b"a"), task(options, 0, b"b", b"c")], 0)
    writer.commit([task(options, 1, b"d", b"e")], 1)

    got = [message.body for message in connection.stream("staged-sink").read("first", until="next")]
    assert got == [b"a", b"b", b"c", b"d", b"e"]
    (stage,) = [one for one in connection.admin.list_stages() if one.name == "a-query"]
    assert (stage.name, stage.last_batch, stage.row_count) == ("a-query", 1, 0)
    with pytest.raises(penstock.PreconditionFailedError, match="other rows"):
        writer.commit([Staged("a-query", failed[0].attempt, 1)], 2)
    with pytest.raises(penstock.PreconditionFailedError, match="is not the one that was published"):
        writer.commit([task(options, 1, b"d", b"x")], 1)
    with pytest.raises(penstock.PreconditionFailedError, match="2 rows were published, 0 are staged now"):
        writer.commit([stage_rows(iter([]), options, "a-query", 1)], 1)
    BatchWriter(options, SCHEMA).commit([])
    connection.admin.delete_stage("a-query")
    connection.delete_stream("staged-sink")


def test_a_task_that_is_late_does_not_make_the_stage_of_a_write_that_is_over_anew(
    options: WriteOptions, connection: penstock.Connection
) -> None:
    before = connection.admin.list_stages()
    for end in ("commit", "abort"):
        writer = BatchWriter(options, SCHEMA)

        def written(body: bytes, writer: BatchWriter = writer) -> Any:
            return writer.write(iter([pa.record_batch({"body": [body]})]))

        getattr(writer, end)([written(b"a")])

        with pytest.raises(RefusedError, match="was ended: its job is over"):
            written(b"late")
    assert connection.admin.list_stages() == before
    connection.delete_stream("staged-sink")


WAIT_SECONDS = 0.6


@pytest.fixture
def hasty() -> WriteOptions:
    """Options to retry for a second, at a broker that each test replaces."""
    return parse_write_options({"uri": "penstock://h/", "stream": "s", "staged": "true", "retrySeconds": "1"})


def test_a_call_that_took_long_before_its_connection_was_lost_is_retried_for_all_the_seconds(
    hasty: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = iter([ConnectionLostError("the broker was restarted"), None])

    @contextmanager
    def connect(uri: str, *, native: bool) -> Iterator[None]:
        yield

    def call(_: object) -> str:
        outcome = next(outcomes)
        if outcome is not None:
            Event().wait(2 * WAIT_SECONDS)
            raise outcome
        return "published"

    monkeypatch.setattr(staging, "connect", connect)

    assert staging.asked_again(hasty, call) == "published"


def test_a_broker_that_never_greets_is_given_up(hasty: WriteOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    began = monotonic()

    def connect(uri: str, *, native: bool) -> None:
        assert monotonic() - began < 10, "it is asked for ever"
        Event().wait(WAIT_SECONDS)
        raise DeadlineError("no answer")

    monkeypatch.setattr(staging, "connect", connect)

    with pytest.raises(DeadlineError):
        staging.asked_again(hasty, lambda _: None)
