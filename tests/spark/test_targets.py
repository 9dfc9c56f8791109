"""Checks of a write in the driver, without a session: one sentence about the stream, before any task."""

import pickle
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import penstock
from penstock.spark.errors import NotFoundError
from penstock.spark.names import bound_name
from penstock.spark.options import parse_write_options
from penstock.spark.source import PenstockSource
from penstock.spark.staging import stage_rows
from support import Broker

SCHEMA = StructType([StructField("body", BinaryType())])
MISSING = "stream 'nowhere' in vhost '/' not found; declare it first or check the name"
ROWS = pa.record_batch({"body": [b"1"]})


@pytest.fixture
def sinks(connection: penstock.Connection) -> list[str]:
    names = [f"sink-{number}-{uuid4().hex[:8]}" for number in range(2)]
    for name in names:
        connection.declare_stream(name)
    return names


@pytest.mark.parametrize("staged", ["false", "true"])
def test_a_stream_that_is_not_there_is_refused_where_the_write_is_planned(broker: Broker, staged: str) -> None:
    source = PenstockSource({"uri": broker.uri(), "stream": "nowhere", "staged": staged})

    for plan in (source.writer, source.streamWriter):
        with pytest.raises(NotFoundError) as refused:
            plan(SCHEMA, overwrite=False)

        assert str(refused.value) == MISSING


def test_a_dead_letter_stream_that_is_not_there_is_refused_where_the_read_is_planned(
    broker: Broker, sinks: list[str]
) -> None:
    decoding = {"parsed": "json", "parsedSchema": "id INT", "deadLetterStream": "nowhere"}
    source = PenstockSource({"uri": broker.uri(), "stream": sinks[0], **decoding})

    for plan in (source.reader, source.streamReader):
        with pytest.raises(NotFoundError) as refused:
            plan(StructType().add("value", StructType().add("id", "integer")))

        assert str(refused.value) == MISSING


def test_a_name_stages_rows_for_each_stream_that_it_writes_to(
    broker: Broker, sinks: list[str], connection: penstock.Connection
) -> None:
    for sink in sinks:
        given = {"uri": broker.uri(), "staged": "true", "producer": "nightly", "stream": sink}
        options = parse_write_options(given)
        writer = PenstockSource(given).writer(SCHEMA, overwrite=False)
        writer.commit([stage_rows(iter([ROWS]), options, bound_name("nightly", options), 1)])

    assert [connection.stream(sink).info().message_count for sink in sinks] == [1, 1]


def test_a_user_who_may_only_write_may_write(broker: Broker, connection: penstock.Connection, sinks: list[str]) -> None:
    user = f"writer-{uuid4().hex[:8]}"
    connection.admin.put_user(user, "word")
    connection.admin.set_permission(user, "/", write=".*")
    options = {"uri": broker.uri(), "stream": sinks[0]}
    host = broker.uri().rpartition("@")[2]
    options["uri"] = f"penstock://{user}:word@{host}"

    writer = PenstockSource(options).writer(SCHEMA, overwrite=False)
    staged = PenstockSource({**options, "staged": "true", "producer": "a"}).writer(SCHEMA, overwrite=False)

    assert pickle.loads(pickle.dumps([writer, staged]))
    connection.admin.delete_user(user)
