"""Direct replies with pika: a client that asks waits on `amq.rabbitmq.reply-to`, without a queue of its own."""

from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, UnroutableError

from support import Broker, eventually
from support.broker import free_ports

REPLY_TO = "amq.rabbitmq.reply-to"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    found = free_ports(1)[0]
    with Broker(tmp_path_factory.mktemp("replies") / "data", "--amqp", f"127.0.0.1:{found}"):
        yield found


@pytest.fixture
def connections(port: int) -> Iterator[tuple[pika.BlockingConnection, pika.BlockingConnection]]:
    parameters = pika.ConnectionParameters("127.0.0.1", port)
    with pika.BlockingConnection(parameters) as one, pika.BlockingConnection(parameters) as other:
        yield one, other


def ask(channel: BlockingChannel, heard: list[tuple[str | None, bytes]]) -> None:
    """Consume replies, and send a request to the queue `requests`."""
    channel.queue_declare("requests")
    channel.basic_consume(
        REPLY_TO, lambda _, __, properties, body: heard.append((properties.correlation_id, body)), auto_ack=True
    )
    channel.basic_publish("", "requests", b"6 * 7", pika.BasicProperties(reply_to=REPLY_TO, correlation_id="one"))


def requested(channel: BlockingChannel) -> Any:
    """Return the properties of the next request."""
    found: list[Any] = []

    def is_there() -> bool:
        found[:] = [channel.basic_get("requests", auto_ack=True)]
        return found[0][0] is not None

    eventually(is_there, True)
    return found[0][1]


def test_a_reply_comes_to_who_asked(connections: tuple[pika.BlockingConnection, pika.BlockingConnection]) -> None:
    client, server = (connection.channel() for connection in connections)
    heard: list[tuple[str | None, bytes]] = []
    ask(client, heard)
    properties = requested(server)
    assert properties.reply_to.startswith(f"{REPLY_TO}.")
    assert server.queue_declare(properties.reply_to, passive=True).method.queue == properties.reply_to

    server.confirm_delivery()
    for number in range(100):
        server.basic_publish(
            "", properties.reply_to, b"%d" % number, pika.BasicProperties(correlation_id=properties.correlation_id)
        )

    def replies() -> list[tuple[str | None, bytes]]:
        connections[0].process_data_events(time_limit=0.1)
        return heard

    eventually(replies, [("one", b"%d" % number) for number in range(100)])


def test_a_reply_to_somebody_who_has_gone_returns(
    connections: tuple[pika.BlockingConnection, pika.BlockingConnection],
) -> None:
    client, server = (connection.channel() for connection in connections)
    ask(client, [])
    reply_to = requested(server).reply_to
    client.close()
    server.confirm_delivery()
    server.basic_publish("", reply_to, b"nobody needs it")

    with pytest.raises(UnroutableError):
        server.basic_publish("", reply_to, b"it comes back", mandatory=True)
    with pytest.raises(ChannelClosedByBroker, match=f"404.*no queue '{reply_to}' in vhost '/'"):
        server.queue_declare(reply_to, passive=True)


def test_a_consumer_of_replies_is_one_of_its_channel_and_acks_nothing(
    connections: tuple[pika.BlockingConnection, pika.BlockingConnection],
) -> None:
    def consume(channel: BlockingChannel, **settings: Any) -> None:
        channel.basic_consume(REPLY_TO, lambda *_: None, **settings)

    def consume_twice(channel: BlockingChannel) -> None:
        consume(channel, auto_ack=True)
        consume(channel, auto_ack=True)

    def ask_without_consumer(channel: BlockingChannel) -> None:
        tag = channel.basic_consume(REPLY_TO, lambda *_: None, auto_ack=True)
        channel.basic_cancel(tag)
        channel.confirm_delivery()
        channel.basic_publish("", "requests", b"x", pika.BasicProperties(reply_to=REPLY_TO))

    cases: list[tuple[str, Callable[[BlockingChannel], None]]] = [
        ("reply consumer cannot acknowledge", consume),
        ("reply consumer already set", consume_twice),
        ("fast reply consumer does not exist", ask_without_consumer),
    ]
    for text, do in cases:
        with pytest.raises(ChannelClosedByBroker) as refused:
            do(connections[0].channel())
        assert (refused.value.reply_code, refused.value.reply_text) == (406, f"PRECONDITION_FAILED - {text}")
