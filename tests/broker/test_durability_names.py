"""A broker promises what a durability says, or refuses to."""

import json

import pyarrow as pa
import pytest
from pyarrow import flight

import penstock
from support import Broker
from support.describer import Describer


def test_a_broker_without_a_cluster_cannot_promise_replicas(broker: Broker, vhost: str) -> None:
    uri = broker.uri(vhost)
    with penstock.connect(uri) as connection:
        connection.declare_queue("jobs")
    refused = pytest.raises(penstock.PreconditionFailedError, match="`replicated` is for virtual hosts of a cluster")

    with penstock.connect(uri, durability="replicated", timeout=20) as connection, refused:
        connection.publish(b"1", routing_key="jobs")

    with penstock.connect(uri) as connection:
        assert connection.admin.get_queue("jobs").ready_count == 0


def put(broker: Broker, vhost: str, durability: str) -> None:
    """Publish a row over Flight."""
    arrow, rows = Describer(broker, vhost), pa.table({"body": pa.array([b"1"], pa.binary())})
    command = {"vhost": vhost, "routing_key": "jobs", "durability": durability}
    descriptor = flight.FlightDescriptor.for_command(json.dumps(command))
    writer, results = arrow.client.do_put(descriptor, rows.schema, arrow.options)
    with writer:
        writer.write_table(rows)
        writer.done_writing()
        while results.read() is not None:
            pass


def test_over_flight_neither(broker: Broker, vhost: str) -> None:
    with penstock.connect(broker.uri(vhost)) as connection:
        connection.declare_queue("jobs")
        put(broker, vhost, "disk")

        with pytest.raises(pa.ArrowException, match="`replicated` is for virtual hosts of a cluster"):
            put(broker, vhost, "replicated")

        assert connection.admin.get_queue("jobs").ready_count == 1
