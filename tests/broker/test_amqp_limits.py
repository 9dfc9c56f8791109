"""Limits over AMQP with pika: full queues, messages and queues that expire, limits of virtual hosts and users."""

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker, NackError

import penstock
from support import Broker
from support.broker import free_ports
from support.waiting import eventually

SECONDS_MAX = 30


@pytest.fixture(scope="module")
def amqp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int]]:
    """Return a broker and the port of its AMQP listener."""
    port = free_ports(1)[0]
    with Broker(tmp_path_factory.mktemp("amqp") / "data", "--amqp", f"127.0.0.1:{port}") as broker:
        yield broker, port


def open_connection(port: int, user: str = "guest", password: str = "guest") -> pika.BlockingConnection:
    credentials = pika.PlainCredentials(user, password)
    parameters = pika.ConnectionParameters(
        "127.0.0.1", port, "/", credentials, blocked_connection_timeout=SECONDS_MAX, socket_timeout=SECONDS_MAX
    )
    return pika.BlockingConnection(parameters)


@pytest.fixture
def channel(amqp: tuple[Broker, int]) -> Iterator[BlockingChannel]:
    connection = open_connection(amqp[1])
    yield connection.channel()
    if connection.is_open:
        connection.close()


def count_of(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    """Take all messages of a queue."""
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


def test_a_full_queue_drops_its_oldest_messages(channel: BlockingChannel) -> None:
    channel.queue_declare("last", arguments={"x-max-length": 3})
    channel.confirm_delivery()
    for number in range(10):
        channel.basic_publish("", "last", b"%d" % number)

    assert count_of(channel, "last") == 3
    assert bodies(channel, "last") == [b"7", b"8", b"9"]


def test_a_full_queue_that_rejects_is_nacked_to_a_channel_with_confirms(channel: BlockingChannel) -> None:
    arguments = {"x-max-length": 2, "x-max-length-bytes": 1_000, "x-overflow": "reject-publish"}
    channel.queue_declare("full", arguments=arguments)
    channel.queue_declare("other")
    channel.exchange_declare("both", "fanout")
    for queue in ("full", "other"):
        channel.queue_bind(queue, "both")
    channel.confirm_delivery()
    channel.basic_publish("both", "", b"1")
    channel.basic_publish("both", "", b"2")

    with pytest.raises(NackError):
        channel.basic_publish("both", "", b"3")

    assert bodies(channel, "full") == [b"1", b"2"]
    assert bodies(channel, "other") == [b"1", b"2", b"3"]
    with pytest.raises(NackError):
        channel.basic_publish("", "full", b"x" * 1_001)
    channel.basic_publish("", "full", b"x" * 1_000)


def test_a_channel_without_confirms_is_not_told(channel: BlockingChannel) -> None:
    channel.queue_declare("quiet", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    for number in range(3):
        channel.basic_publish("", "quiet", b"%d" % number)

    assert bodies(channel, "quiet") == [b"0"]
    assert channel.is_open


def test_a_consumer_that_waits_gets_more_messages_than_the_queue_may_have(channel: BlockingChannel) -> None:
    channel.queue_declare("flow", arguments={"x-max-length": 1})
    got: list[bytes] = []
    channel.basic_consume("flow", lambda _channel, _method, _properties, body: got.append(body), auto_ack=True)
    channel.connection.process_data_events(0)
    for number in range(50):
        channel.basic_publish("", "flow", b"%d" % number)

    while len(got) < 50:
        channel.connection.process_data_events(SECONDS_MAX)

    assert got == [b"%d" % number for number in range(50)]


def test_the_shorter_of_a_message_s_and_its_queue_s_time_counts(channel: BlockingChannel) -> None:
    channel.queue_declare("short", arguments={"x-message-ttl": 300})
    channel.queue_declare("long", arguments={"x-message-ttl": 3_600_000})
    channel.confirm_delivery()
    channel.basic_publish("", "short", b"by the queue", pika.BasicProperties(expiration="3600000"))
    channel.basic_publish("", "long", b"by itself", pika.BasicProperties(expiration="300"))
    channel.basic_publish("", "long", b"stays", pika.BasicProperties(expiration="3600000"))

    eventually(lambda: (count_of(channel, "short"), count_of(channel, "long")), (0, 1), 60)

    _, properties, body = channel.basic_get("long", auto_ack=True)
    assert (body, properties.expiration) == (b"stays", "3600000")


def test_a_policy_sets_the_time_of_messages(channel: BlockingChannel, amqp: tuple[Broker, int]) -> None:
    channel.queue_declare("by-policy")
    channel.basic_publish("", "by-policy", b"x")
    with penstock.connect(amqp[0].uri()) as connection:
        connection.admin.set_policy("ttl", "^by-policy$", {"message-ttl": 100}, "queues")
        eventually(lambda: count_of(channel, "by-policy"), 0, 60)
        connection.admin.delete_policy("ttl")


def test_a_queue_expires_without_consumers_gets_and_declarations(channel: BlockingChannel) -> None:
    channel.queue_declare("unused", arguments={"x-expires": 200})
    channel.queue_declare("used", arguments={"x-expires": 4_000})
    for _ in range(60):
        channel.connection.sleep(0.1)
        channel.basic_get("used")
        channel.queue_declare("used", passive=True)

    with pytest.raises(ChannelClosedByBroker) as raised:
        channel.queue_declare("unused", passive=True)
    assert raised.value.reply_code == 404


@pytest.mark.parametrize(
    "arguments", [{"x-max-length": -1}, {"x-max-length": "1"}, {"x-overflow": "drop-tail"}, {"x-expires": 0}]
)
def test_a_wrong_limit_is_a_precondition_that_fails(channel: BlockingChannel, arguments: dict[str, object]) -> None:
    with pytest.raises(ChannelClosedByBroker) as raised:
        channel.queue_declare("wrong", arguments=arguments)
    assert raised.value.reply_code == 406


def test_a_virtual_host_has_so_many_queues_and_connections(channel: BlockingChannel, amqp: tuple[Broker, int]) -> None:
    with penstock.connect(amqp[0].uri()) as connection:
        count = len(list(connection.admin.list_queues()))
        connection.admin.set_vhost_limits(queues_max=count, connections_max=1)
        try:
            with pytest.raises((ChannelClosedByBroker, ConnectionClosedByBroker)):
                channel.queue_declare("one-too-many")
            with pytest.raises((ConnectionClosedByBroker, pika.exceptions.AMQPConnectionError)):
                open_connection(amqp[1])
        finally:
            connection.admin.set_vhost_limits()


def test_a_user_has_so_many_connections_and_publishers_and_consumers(amqp: tuple[Broker, int]) -> None:
    with penstock.connect(amqp[0].uri()) as connection:
        connection.admin.put_user("lena", "secret")
        connection.admin.set_permission("lena", "/", ".*", ".*", ".*")
        connection.admin.set_user_limits("lena", connections_max=1, streams_max=2)
        with open_connection(amqp[1], "lena", "secret") as one:
            with pytest.raises((ConnectionClosedByBroker, pika.exceptions.AMQPConnectionError)):
                open_connection(amqp[1], "lena", "secret")
            channels = [one.channel(), one.channel()]
            channels[0].queue_declare("of-lena")
            for channel in channels:
                channel.basic_publish("", "of-lena", b"x")
                channel.basic_consume("of-lena", lambda *_: None)
            channels.pop().close()
            one.channel()
            with pytest.raises(ConnectionClosedByBroker) as raised:
                one.channel()
            told = "number of channels opened for user 'lena' has reached the maximum allowed user limit of (2)"
            assert (raised.value.reply_code, raised.value.reply_text) == (530, f"NOT_ALLOWED - {told}")
        connection.admin.delete_user("lena")
