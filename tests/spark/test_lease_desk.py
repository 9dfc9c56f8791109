"""The driver's calls about leases, to a broker whose host vanishes while its sockets stay open."""

import threading

import pytest

import penstock
from penstock.client.errors import ConnectionLostError, DeadlineError
from penstock.spark import queues
from penstock.spark.queue_options import parse_queue_options
from penstock.spark.queues import LeaseDesk
from support import Broker
from support.stopping_proxy import StoppingProxy


def test_calls_go_on_when_the_host_is_back_within_the_time_for_retries(
    broker: Broker, connection: penstock.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "CALL_SECONDS_MAX", 1.0)
    connection.declare_queue("leased-orders")
    port = int(broker.uri().rpartition(":")[2].partition("/")[0])
    with StoppingProxy(port) as proxy:
        uri = f"penstock://guest:guest@127.0.0.1:{proxy.port}/"
        options = {"uri": uri, "queue": "leased-orders", "owner": "lake"}
        patient = LeaseDesk(parse_queue_options({**options, "retrySeconds": "60"}))
        hasty = LeaseDesk(parse_queue_options({**options, "retrySeconds": "0"}))
        assert (patient.acked(), hasty.acked()) == (0, 0)
        proxy.stop()
        with pytest.raises((ConnectionLostError, DeadlineError)):
            hasty.acked()
        threading.Timer(3, proxy.go).start()

        assert patient.acked() == 0

        patient.close()
        hasty.close()
