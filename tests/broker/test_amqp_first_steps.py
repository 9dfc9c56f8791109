"""The AMQP listener with pika: log-in, queues and bindings, publishing with confirms, consuming and settling."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
    UnroutableError,
)

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


def parameters(port: int, user: str = "guest", password: str = "guest", vhost: str = "/") -> pika.ConnectionParameters:
    credentials = pika.PlainCredentials(user, password)
    return pika.ConnectionParameters(
        "127.0.0.1", port, vhost, credentials, blocked_connection_timeout=SECONDS_MAX, socket_timeout=SECONDS_MAX
    )


@pytest.fixture
def channel(amqp: tuple[Broker, int]) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(parameters(amqp[1]))
    yield connection.channel()
    if connection.is_open:
        connection.close()


def consumed(channel: BlockingChannel, queue: str, count: int, **settings: Any) -> list[tuple[Any, Any, bytes]]:
    """Consume `count` messages without settling them."""
    messages: list[tuple[Any, Any, bytes]] = []
    for method, properties, body in channel.consume(queue, inactivity_timeout=SECONDS_MAX, **settings):
        assert method is not None, f"{len(messages)} of {count} came"
        messages.append((method, properties, body))
        if len(messages) == count:
            break
    return messages


def test_a_message_goes_through_the_default_exchange_and_is_acked(
    channel: BlockingChannel, amqp: tuple[Broker, int]
) -> None:
    declared = channel.queue_declare("letters", durable=True)
    channel.confirm_delivery()
    properties = pika.BasicProperties(content_type="text/plain", headers={"n": 1}, delivery_mode=2, message_id="one")

    channel.basic_publish("", "letters", b"hello", properties, mandatory=True)
    [(method, received, body)] = consumed(channel, "letters", 1)
    channel.basic_ack(method.delivery_tag)
    channel.cancel()

    assert (declared.method.queue, declared.method.message_count) == ("letters", 0)
    assert (body, method.routing_key, method.redelivered) == (b"hello", "letters", False)
    assert (received.content_type, received.headers, received.message_id) == ("text/plain", {"n": 1}, "one")
    channel.connection.close()
    with penstock.connect(amqp[0].uri()) as connection:
        found = connection.admin.get_queue("letters")
        assert (found.ready_count, found.unacked_count) == (0, 0)


def test_a_thousand_messages_are_confirmed_and_come_in_order(channel: BlockingChannel) -> None:
    channel.queue_declare("many")
    for number in range(1000):
        channel.basic_publish("", "many", b"%d" % number)

    messages = consumed(channel, "many", 1000, auto_ack=True)

    assert [body for _, _, body in messages] == [b"%d" % number for number in range(1000)]
    channel.cancel()
    channel.queue_delete("many")


def test_a_message_of_a_megabyte_survives_the_way(channel: BlockingChannel) -> None:
    body = bytes(range(256)) * 4096
    channel.queue_declare("large")
    channel.basic_publish("", "large", body)

    [(_, _, received)] = consumed(channel, "large", 1, auto_ack=True)

    assert received == body
    channel.cancel()


def test_topics_are_bound_and_unbound(channel: BlockingChannel) -> None:
    channel.exchange_declare("events", "topic", durable=True)
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, "events", "order.#")
    channel.confirm_delivery()
    channel.basic_publish("events", "order.created", b"yes", mandatory=True)

    assert queue.startswith("amq.gen")
    assert [body for _, _, body in consumed(channel, queue, 1, auto_ack=True)] == [b"yes"]
    channel.cancel()
    channel.queue_unbind(queue, "events", "order.#")
    with pytest.raises(UnroutableError) as raised:
        channel.basic_publish("events", "order.created", b"no", mandatory=True)
    assert [message.body for message in raised.value.messages] == [b"no"]
    channel.exchange_delete("events")


def test_what_is_not_acked_is_delivered_again(channel: BlockingChannel, amqp: tuple[Broker, int]) -> None:
    channel.queue_declare("again")
    channel.basic_publish("", "again", b"work")
    consumed(channel, "again", 1)
    channel.connection.close()

    with pika.BlockingConnection(parameters(amqp[1])) as other:
        [(method, _, body)] = consumed(other.channel(), "again", 1, auto_ack=True)

    assert (body, method.redelivered) == (b"work", True)


def test_reply_codes_and_texts_are_those_that_clients_know(channel: BlockingChannel, amqp: tuple[Broker, int]) -> None:
    channel.queue_declare("plain", durable=True)
    ordered = {"x-queue-type": "quorum", "x-single-active-consumer": True}
    channel.queue_declare("ordered", durable=True, arguments=ordered)
    connection = channel.connection
    cases: list[tuple[int, str, Callable[[Any], Any]]] = [
        (404, "no queue 'absent' in vhost '/'", lambda one: one.queue_declare("absent", passive=True)),
        (404, "no exchange 'absent' in vhost '/'", lambda one: one.queue_bind("plain", "absent", "key")),
        (
            406,
            "inequivalent arg 'durable' for queue 'plain' in vhost '/': received 'false' but current is 'true'",
            lambda one: one.queue_declare("plain", durable=False),
        ),
        (
            405,
            "cannot obtain exclusive access to locked queue 'plain' in vhost '/'",
            lambda one: one.queue_declare("plain", exclusive=True),
        ),
        (
            403,
            "operation not permitted on the default exchange",
            lambda one: one.exchange_declare("", passive=True),
        ),
        (404, "absent", lambda one: one.basic_consume("absent", lambda *_: None)),
        (
            405,
            "basic.get operations are not supported by quorum queues with single active consumer",
            lambda one: one.basic_get("ordered"),
        ),
    ]
    for code, text, ask in cases:
        with pytest.raises(ChannelClosedByBroker) as raised:
            ask(connection.channel())
        assert raised.value.reply_code == code
        assert text in raised.value.reply_text
    with pika.BlockingConnection(parameters(amqp[1])) as other:
        owner = other.channel()
        owner.queue_declare("mine", exclusive=True)
        with pytest.raises(ChannelClosedByBroker) as raised:
            connection.channel().queue_declare("mine", passive=True)
        assert raised.value.reply_code == 405
        assert "cannot obtain exclusive access to locked queue 'mine' in vhost '/'" in raised.value.reply_text


def test_an_exclusive_queue_is_gone_when_the_close_of_its_connection_is_confirmed(
    channel: BlockingChannel, amqp: tuple[Broker, int]
) -> None:
    for _ in range(20):
        with pika.BlockingConnection(parameters(amqp[1])) as owner:
            owner.channel().queue_declare("mine", exclusive=True)

        channel.queue_declare("mine", exclusive=True)
        channel.queue_delete("mine")


def test_conditions_that_are_not_met_are_refused_in_rabbitmq_s_words(
    channel: BlockingChannel, amqp: tuple[Broker, int]
) -> None:
    channel.queue_declare("watched", auto_delete=True)
    channel.basic_consume("watched", lambda *_: None)
    channel.queue_declare("filled")
    channel.confirm_delivery()
    channel.basic_publish("", "filled", b"x")
    cases: list[tuple[int, str, Callable[[Any], Any]]] = [
        (
            406,
            "PRECONDITION_FAILED - queue 'watched' in vhost '/' in use",
            lambda one: one.queue_delete("watched", if_unused=True),
        ),
        (
            406,
            "PRECONDITION_FAILED - queue 'filled' in vhost '/' not empty",
            lambda one: one.queue_delete("filled", if_empty=True),
        ),
        (
            403,
            "ACCESS_REFUSED - queue 'watched' in vhost '/' in exclusive use",
            lambda one: one.basic_consume("watched", lambda *_: None, exclusive=True),
        ),
    ]
    with pika.BlockingConnection(parameters(amqp[1])) as other:
        for code, text, ask in cases:
            with pytest.raises(ChannelClosedByBroker) as raised:
                ask(other.channel())
            assert (raised.value.reply_code, raised.value.reply_text) == (code, text)
        assert other.channel().queue_delete("absent").method.message_count == 0
        other.channel().exchange_delete("absent")
        with pytest.raises(ConnectionClosedByBroker, match=r"503.*COMMAND_INVALID - unknown exchange type 'x-odd'"):
            other.channel().exchange_declare("odd", "x-odd")


def test_users_without_a_right_are_refused(amqp: tuple[Broker, int]) -> None:
    broker, port = amqp
    with penstock.connect(broker.uri()) as root:
        root.admin.put_user("bob", password="secret")
        root.admin.set_permission("bob", "/", configure="", write="", read="")
        root.admin.put_user("eve", password="secret")

    with pytest.raises(ProbableAuthenticationError, match=r"403.*ACCESS_REFUSED - Login was refused"):
        pika.BlockingConnection(parameters(port, "bob", "wrong"))
    with pytest.raises(
        (ProbableAccessDeniedError, ConnectionClosedByBroker), match="access to vhost '/' refused for user 'eve'"
    ):
        pika.BlockingConnection(parameters(port, "eve", "secret"))
    with pytest.raises((ProbableAccessDeniedError, ConnectionClosedByBroker), match=r"530.*vhost absent not found"):
        pika.BlockingConnection(parameters(port, vhost="absent"))
    with pika.BlockingConnection(parameters(port, "bob", "secret")) as connection:
        with pytest.raises(
            ChannelClosedByBroker, match=r"403.*configure access to queue 'bobs' in vhost '/' refused for user 'bob'"
        ):
            connection.channel().queue_declare("bobs")
        channel = connection.channel()
        channel.confirm_delivery()
        with pytest.raises(ChannelClosedByBroker, match="403"):
            channel.basic_publish("amq.topic", "key", b"x")


def test_a_cancelled_consumer_leaves_its_queue_before_its_messages_are_settled(
    channel: BlockingChannel, amqp: tuple[Broker, int]
) -> None:
    channel.queue_declare("left", auto_delete=True)
    channel.queue_declare("shared", durable=True)
    for queue in ("left", "shared"):
        channel.basic_publish("", queue, b"work")
        consumed(channel, queue, 1)
        channel.cancel()

    with pika.BlockingConnection(parameters(amqp[1])) as other:
        with pytest.raises(ChannelClosedByBroker, match=r"404.*no queue 'left'"):
            other.channel().queue_declare("left", passive=True)
        alone = other.channel()
        assert alone.queue_declare("shared", passive=True).method.consumer_count == 0
        alone.basic_consume("shared", lambda *_: None, exclusive=True)


def test_a_deleted_user_s_connection_is_closed(amqp: tuple[Broker, int]) -> None:
    broker, port = amqp
    with penstock.connect(broker.uri()) as root:
        root.admin.put_user("gone", password="secret")
        root.admin.set_permission("gone", "/", configure="", write="", read="")
        connection = pika.BlockingConnection(parameters(port, "gone", "secret"))
        root.admin.delete_user("gone")
        with pytest.raises(ConnectionClosedByBroker) as raised:
            connection.process_data_events(time_limit=SECONDS_MAX)

    assert (raised.value.reply_code, raised.value.reply_text) == (320, "CONNECTION_FORCED - user 'gone' is deleted")


def test_connections_above_a_limit_are_refused(amqp: tuple[Broker, int]) -> None:
    broker, port = amqp
    with penstock.connect(broker.uri()) as root:
        root.admin.put_user("one", password="secret")
        root.admin.set_permission("one", "/", configure="", write="", read="")
        root.admin.set_user_limits("one", connections_max=1)
    text = r"530.*NOT_ALLOWED - Connection refused for user 'one': user connection limit \(1\) is reached"
    with (
        pika.BlockingConnection(parameters(port, "one", "secret")),
        pytest.raises((ProbableAccessDeniedError, ConnectionClosedByBroker, ProbableAuthenticationError), match=text),
    ):
        pika.BlockingConnection(parameters(port, "one", "secret"))


def test_a_method_that_is_not_served_ends_the_connection(channel: BlockingChannel) -> None:
    with pytest.raises(ConnectionClosedByBroker, match=r"540.*prefetch_size!=0 \(1\)"):
        channel.basic_qos(prefetch_size=1)


def test_messages_are_got_one_at_a_time_and_recovered(channel: BlockingChannel) -> None:
    channel.queue_declare("got")
    assert channel.basic_get("got") == (None, None, None)
    for body in (b"one", b"two"):
        channel.basic_publish("", "got", body)

    first, _, body = channel.basic_get("got")
    assert (body, first.message_count, first.redelivered) == (b"one", 1, False)
    channel.basic_recover(requeue=True)
    again, _, body = channel.basic_get("got", auto_ack=True)
    assert (body, again.redelivered) == (b"one", True)
    last, _, body = channel.basic_get("got")
    channel.basic_ack(last.delivery_tag)

    assert body == b"two"
    assert channel.basic_get("got") == (None, None, None)


def test_a_deleted_queue_cancels_its_consumers(channel: BlockingChannel, amqp: tuple[Broker, int]) -> None:
    channel.queue_declare("leaving")
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume("leaving", lambda *_: None)
    with pika.BlockingConnection(parameters(amqp[1])) as other:
        other.channel().queue_delete("leaving")

    channel.connection.process_data_events(time_limit=SECONDS_MAX)

    assert cancelled == [tag]


def test_messages_and_confirms_survive_a_kill(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    with Broker(tmp_path / "data", "--amqp", f"127.0.0.1:{port}") as broker:
        connection = pika.BlockingConnection(parameters(port))
        channel = connection.channel()
        channel.queue_declare("kept", durable=True)
        channel.confirm_delivery()
        for number in range(100):
            channel.basic_publish("", "kept", b"%d" % number, pika.BasicProperties(delivery_mode=2))
        broker.kill()
        with pytest.raises(AMQPConnectionError):
            connection.process_data_events(time_limit=SECONDS_MAX)
        broker.start()
        with pika.BlockingConnection(parameters(port)) as connection:
            messages = consumed(connection.channel(), "kept", 100, auto_ack=True)

    assert [body for _, _, body in messages] == [b"%d" % number for number in range(100)]
