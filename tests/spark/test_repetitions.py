"""Writers as Spark calls them, without Spark: a repeated batch is stored once or refused, and names are deleted."""

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import BinaryType, StructField, StructType

import penstock
from penstock.spark import writing
from penstock.spark.errors import NotFoundError, OptionError, RefusedError
from penstock.spark.names import bound_name, task_name
from penstock.spark.options import WriteOptions, parse_write_options
from penstock.spark.writing import BatchWriter, MicroBatchWriter, Written, publish
from support import Broker

SCHEMA = StructType([StructField("body", BinaryType())])
DIFFERS = "is not the one that was stored"


@pytest.fixture
def stream(connection: penstock.Connection) -> Iterator[str]:
    name = f"sink-{uuid4().hex[:8]}"
    connection.declare_stream(name)
    yield name
    connection.delete_stream(name)


@pytest.fixture
def options(broker: Broker, stream: str) -> WriteOptions:
    return parse_write_options({"uri": broker.uri(), "stream": stream})


def rows(*bodies: bytes) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"body": list(bodies)})] if bodies else [])


def stored(connection: penstock.Connection, stream: str) -> list[bytes]:
    return [message.body for message in connection.stream(stream).read("first", until="next")]


def write(options: WriteOptions, batch: int, *bodies: bytes, query: str = "a-query", task: int = 0) -> Written:
    return publish(rows(*bodies), options, task_name(bound_name(query, options), task), batch)


def test_a_batch_that_is_repeated_as_it_was_is_stored_once_and_the_query_goes_on(
    options: WriteOptions, stream: str, connection: penstock.Connection
) -> None:
    write(options, 0, b"a", b"b")
    write(options, 1, b"c")

    assert write(options, 0, b"a", b"b") == Written(rows=2, unroutable=0, repeated=2)
    assert write(options, 1, b"c") == Written(rows=1, unroutable=0, repeated=1)
    assert write(options, 2, b"d") == Written(rows=1, unroutable=0, repeated=0)

    assert stored(connection, stream) == [b"a", b"b", b"c", b"d"]


def test_rows_that_a_shuffle_brings_in_another_order_are_refused(
    options: WriteOptions, stream: str, connection: penstock.Connection
) -> None:
    write(options, 0, b"a", b"b")

    with pytest.raises(RefusedError, match=DIFFERS):
        write(options, 0, b"b", b"a", b"c")

    assert stored(connection, stream) == [b"a", b"b"]


def test_a_task_that_has_no_rows_any_more_is_refused(options: WriteOptions) -> None:
    write(options, 0, b"a")
    assert write(options, 0, task=1) == Written(0, 0, 0)

    with pytest.raises(RefusedError, match="1 of its rows are stored, and 0 came now"):
        write(options, 0)


def test_a_stream_that_is_deleted_during_a_write_takes_no_rows_with_it_silently(
    options: WriteOptions, stream: str, connection: penstock.Connection
) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows(b"a", b"b")
        connection.delete_stream(stream)
        yield from rows(b"c")
        connection.declare_stream(stream)
        yield from rows(b"d")

    with pytest.raises(NotFoundError, match="was deleted during the write: 1 of 4 rows were not stored"):
        publish(batches(), options, f"{stream}/0", 0)


def test_a_name_is_bound_to_the_target(
    broker: Broker, options: WriteOptions, stream: str, connection: penstock.Connection
) -> None:
    other = f"{stream}-green"
    connection.declare_stream(other)
    write(options, 5, b"a")

    write(parse_write_options({"uri": broker.uri(), "stream": other}), 5, b"b")

    assert (stored(connection, stream), stored(connection, other)) == ([b"a"], [b"b"])
    names = {bound_name("q", parse_write_options({"uri": broker.uri(), **target})) for target in TARGETS}
    assert len(names) == len(TARGETS)
    connection.delete_stream(other)


TARGETS = [
    {"stream": "a"},
    {"exchange": "a"},
    {"exchange": "a", "routingKey": "k"},
    {"exchange": "ak"},
]


def test_repeated_rows_are_counted_and_logged_once_for_a_batch(
    options: WriteOptions, caplog: pytest.LogCaptureFixture
) -> None:
    writer = MicroBatchWriter(options, SCHEMA)

    with caplog.at_level(logging.INFO, writing.__name__):
        writer.commit([Written(5, 0, 0), None, Written(5, 0, 0)], 3)
        assert caplog.messages == []
        writer.commit([Written(5, 0, 5), None, Written(5, 0, 2)], 4)

    assert len(caplog.messages) == 1
    assert "7 rows of batch 4 were stored before" in caplog.messages[0]


def run_tasks(
    writer: BatchWriter, monkeypatch: pytest.MonkeyPatch, *tasks: tuple[bytes, ...]
) -> list[WriterCommitMessage | None]:
    done: list[WriterCommitMessage | None] = []
    for number, bodies in enumerate(tasks):
        monkeypatch.setattr(writing, "task", lambda number=number: SimpleNamespace(partitionId=lambda: number))
        done.append(writer.write(rows(*bodies)))
    return done


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_drawn_names_are_deleted_and_a_task_that_was_given_up_stores_nothing_more(
    options: WriteOptions, connection: penstock.Connection, monkeypatch: pytest.MonkeyPatch, stream: str, ends: str
) -> None:
    before = {one.name for one in connection.admin.list_producers()}
    writer = BatchWriter(options, SCHEMA)
    done = run_tasks(writer, monkeypatch, (b"a",), (b"b",), ())
    assert len({one.name for one in connection.admin.list_producers()} - before) == 2

    getattr(writer, ends)(done)

    assert {one.name for one in connection.admin.list_producers()} == before
    with pytest.raises(RefusedError, match="is over"):
        run_tasks(writer, monkeypatch, (b"a",))
    assert stored(connection, stream) == [b"a", b"b"]


@pytest.mark.parametrize("staged", ["false", "true"])
def test_a_version_of_a_program_is_written_once(
    broker: Broker, stream: str, connection: penstock.Connection, monkeypatch: pytest.MonkeyPatch, staged: str
) -> None:
    def write_version(version: int, *tasks: tuple[bytes, ...]) -> None:
        named = {"txnAppId": f"copier-{stream}", "txnVersion": str(version)}
        options = parse_write_options({"uri": broker.uri(), "stream": stream, "staged": staged, **named})
        writer = BatchWriter(options, SCHEMA)
        writer.commit(run_tasks(writer, monkeypatch, *tasks))

    write_version(0, (b"a",), (b"b",))
    write_version(1, (b"c",))
    write_version(0, (b"a",), (b"b",))
    write_version(1, (b"c",))
    with pytest.raises((RefusedError, penstock.PreconditionFailedError), match="is not the one that was"):
        write_version(1, (b"d",))

    assert stored(connection, stream) == [b"a", b"b", b"c"]


def test_a_query_takes_no_version(broker: Broker) -> None:
    named = {"uri": broker.uri(), "stream": "s", "txnAppId": "a", "txnVersion": "0"}

    with pytest.raises(OptionError, match="a query numbers its batches"):
        MicroBatchWriter(parse_write_options(named), SCHEMA)
