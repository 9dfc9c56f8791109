"""Two programs that share a `txnAppId`, as Spark calls their tasks: refused, or counted where rows are equal."""

import logging
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import penstock
from penstock.spark.errors import RefusedError
from penstock.spark.names import bound_name, task_name
from penstock.spark.options import WriteOptions, parse_write_options
from penstock.spark.writing import BatchWriter, Written, publish
from support import Broker

SCHEMA = StructType([StructField("body", BinaryType())])


class Program:
    """One that writes its batches in `foreachBatch` under the name that it shares."""

    def __init__(self, broker: Broker, stream: str) -> None:
        self._uri = broker.uri()
        self._stream = stream

    def task(self, version: int, number: int, *bodies: bytes) -> Written:
        options = self.options(version)
        rows = iter([pa.record_batch({"body": list(bodies)})] if bodies else [])
        return publish(rows, options, task_name(bound_name("copier", options), number), version)

    def commit(self, version: int, *written: Written) -> None:
        BatchWriter(self.options(version), SCHEMA).commit(written)

    def options(self, version: int) -> WriteOptions:
        chosen = {"uri": self._uri, "stream": self._stream, "txnAppId": "copier", "txnVersion": str(version)}
        return parse_write_options(chosen)


@pytest.fixture
def programs(broker: Broker, connection: penstock.Connection) -> Iterator[tuple[Program, Program]]:
    connection.declare_stream("shared-sink")
    yield Program(broker, "shared-sink"), Program(broker, "shared-sink")
    connection.delete_stream("shared-sink")
    for producer in connection.admin.list_producers():
        if producer.name.startswith("copier/"):
            connection.admin.delete_producer(producer.name)


def stored(connection: penstock.Connection) -> list[bytes]:
    return [message.body for message in connection.stream("shared-sink").read("first", until="next")]


def test_other_rows_under_the_same_version_or_an_earlier_one_are_refused(
    programs: tuple[Program, Program], connection: penstock.Connection
) -> None:
    one, other = programs
    one.task(5, 0, b"a", b"b")

    for refused in (
        lambda: other.task(5, 0, b"x", b"b"),
        lambda: other.task(5, 0, b"a"),
        lambda: other.task(5, 0),
        lambda: other.task(3, 0, b"x"),
        lambda: other.task(3, 1, b"x"),
    ):
        with pytest.raises(RefusedError, match="copier"):
            refused()

    assert stored(connection) == [b"a", b"b"]


def test_tasks_of_both_at_the_same_time_end_both(
    programs: tuple[Program, Program], connection: penstock.Connection
) -> None:
    one, other = programs
    one.task(5, 0, b"a")
    other.task(5, 1, b"y")

    with pytest.raises(RefusedError, match="copier"):
        one.task(5, 1, b"b")
    with pytest.raises(RefusedError, match="copier"):
        other.task(5, 0, b"x")

    assert sorted(stored(connection)) == [b"a", b"y"]


def test_equal_rows_are_stored_once_and_counted(
    programs: tuple[Program, Program], connection: penstock.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = programs
    one.commit(5, one.task(5, 0, b"a"))

    with caplog.at_level(logging.WARNING):
        other.commit(5, other.task(5, 0, b"a", b"b"))

    assert stored(connection) == [b"a", b"b"]
    assert [text for text in caplog.messages if "1 rows of batch 5 were stored before and not stored again" in text]
