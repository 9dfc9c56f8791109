"""Rows staged as record batches: a put is an attempt. Rows that would go past their stream."""

import base64
import json
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import penstock
from penstock.client.staging import Attempt
from support import Broker


def put(broker: Broker, vhost: str, table: pa.Table, **command: Any) -> dict[str, int]:
    token = base64.b64encode(b"guest:guest").decode()
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Basic {token}".encode())])
    descriptor = flight.FlightDescriptor.for_command(json.dumps({"vhost": vhost, **command}))
    with flight.FlightClient(f"grpc://{broker.address}") as client:
        writer, results = client.do_put(descriptor, table.schema, options)
        with writer:
            writer.write_table(table, 500)
            writer.done_writing()
            last: dict[str, int] = {}
            while (result := results.read()) is not None:
                last = json.loads(result.to_pybytes())
    return last


def test_a_put_is_an_attempt_that_is_published_with_others(broker: Broker, vhost: str) -> None:
    rows = [b"%d" % number for number in range(1_200)]
    table = pa.table({"body": rows, "key": [b"k%d" % (number % 5) for number in range(1_200)]})
    with penstock.connect(broker.uri(vhost)) as connection:
        connection.declare_stream("clicks", partitions=2)
        first = put(broker, vhost, table, stream="clicks", stage="job", batch=4)
        second = put(broker, vhost, table, stream="clicks", stage="job", batch=4)
        assert first["confirmed"] == 1_200
        assert first["attempt"] != second["attempt"]
        assert connection.stream("clicks").info().message_count == 0

        stage = connection.stage("job", stream="clicks")
        attempt = Attempt(second["attempt"], second["confirmed"])
        assert stage.publish(4, [attempt]).stored == 1_200

        found = list(connection.stream("clicks").read("first", until="next"))
        assert sorted(message.body for message in found) == sorted(rows)
        assert {message.key for message in found} == {b"k0", b"k1", b"k2", b"k3", b"k4"}


def test_a_stage_without_a_batch_or_with_a_durability_is_refused(broker: Broker, vhost: str) -> None:
    table = pa.table({"body": [b"a"]})

    with pytest.raises(pa.ArrowInvalid, match="give its number in `batch`"):
        put(broker, vhost, table, stream="clicks", stage="job")
    with pytest.raises(pa.ArrowInvalid, match="always on the disk"):
        put(broker, vhost, table, stream="clicks", stage="job", batch=1, durability="os")


def test_a_routing_key_takes_no_row_past_the_stream(broker: Broker, vhost: str) -> None:
    rows = pa.table({"body": [b"a", b"b"], "routing_key": [None, "other"]})
    with penstock.connect(broker.uri(vhost)) as connection:
        connection.declare_stream("events")
        connection.declare_stream("other")
        events, other = connection.stream("events"), connection.stream("other")
        commands: list[dict[str, Any]] = [{}, {"stage": "nightly", "batch": 1}]
        for command in commands:
            with pytest.raises(pa.ArrowInvalid, match=r"row 1 has a routing key, .* past stream 'events'"):
                put(broker, vhost, rows, stream="events", **command)
        assert (events.info().message_count, other.info().message_count) == (0, 0)

        without = pa.table({"body": [b"a"], "routing_key": pa.array([None], pa.string())})
        assert put(broker, vhost, without, stream="events")["unroutable"] == 0

        assert (events.info().message_count, other.info().message_count) == (1, 0)


def finish(writer: Any, results: Any, rows: pa.Table) -> None:
    writer.write_table(rows)
    writer.done_writing()
    while results.read() is not None:
        pass
    writer.close()


def test_a_put_that_is_open_when_its_stage_is_ended_fails_and_makes_none(broker: Broker, vhost: str) -> None:
    token = base64.b64encode(b"guest:guest").decode()
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Basic {token}".encode())])
    rows = pa.table({"body": [b"a", b"b"]})
    command = json.dumps({"vhost": vhost, "stream": "clicks", "stage": "job", "batch": 0})
    with (
        penstock.connect(broker.uri(vhost)) as connection,
        flight.FlightClient(f"grpc://{broker.address}") as client,
    ):
        connection.declare_stream("clicks")
        writer, results = client.do_put(flight.FlightDescriptor.for_command(command), rows.schema, options)
        writer.write_table(rows)
        assert results.read() is not None
        connection.admin.delete_stage("job", ended=True)

        with pytest.raises((pa.ArrowException, KeyError, OSError), match=r"no queue 'amq\.stage"):
            finish(writer, results, rows)

        assert connection.admin.list_stages() == []
