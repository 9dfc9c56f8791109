"""A broker promises what a durability says, or refuses to."""

import pytest

import penstock
from support import Broker


def test_a_broker_without_a_cluster_cannot_promise_replicas(broker: Broker, vhost: str) -> None:
    uri = broker.uri(vhost)
    with penstock.connect(uri) as connection:
        connection.declare_queue("jobs")
    refused = pytest.raises(penstock.PreconditionFailedError, match="`replicated` is for virtual hosts of a cluster")

    with penstock.connect(uri, durability="replicated", timeout=20) as connection, refused:
        connection.publish(b"1", routing_key="jobs")

    with penstock.connect(uri) as connection:
        assert connection.admin.get_queue("jobs").ready_count == 0
