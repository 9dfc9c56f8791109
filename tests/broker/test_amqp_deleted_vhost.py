"""Connections of AMQP clients whose virtual host is deleted."""

from collections.abc import Iterator

import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker

import penstock
from support import Broker
from support.broker import free_ports

SECONDS_MAX = 30


@pytest.fixture(scope="module")
def amqp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int]]:
    """Return a broker and the port of its AMQP listener."""
    port = free_ports(1)[0]
    with Broker(tmp_path_factory.mktemp("amqp") / "data", "--amqp", f"127.0.0.1:{port}") as broker:
        yield broker, port


def open_connection(port: int, vhost: str) -> pika.BlockingConnection:
    credentials = pika.PlainCredentials("guest", "guest")
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", port, vhost, credentials, socket_timeout=SECONDS_MAX)
    )


def hear(connection: pika.BlockingConnection) -> None:
    """Process events until the broker ends it."""
    while True:
        connection.process_data_events(SECONDS_MAX)


@pytest.mark.parametrize("consumes", [False, True])
def test_a_connection_ends_with_its_virtual_host_and_others_stay(amqp: tuple[Broker, int], consumes: bool) -> None:
    broker, port = amqp
    with penstock.connect(broker.uri()) as connection:
        connection.admin.create_vhost("shop")
        connection.admin.set_permission("guest", vhost="shop", configure=".*", write=".*", read=".*")
        inside, beside = open_connection(port, "shop"), open_connection(port, "/")
        if consumes:
            channel = inside.channel()
            channel.queue_declare("jobs")
            channel.basic_consume("jobs", lambda *_: None)

        connection.admin.delete_vhost("shop")

        with pytest.raises(ConnectionClosedByBroker) as raised:
            hear(inside)
        closed = raised.value
        assert (closed.reply_code, closed.reply_text) == (320, "CONNECTION_FORCED - vhost 'shop' is deleted")
        beside.channel().queue_declare("jobs")
        beside.close()
