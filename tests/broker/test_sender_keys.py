"""Messages with further routing keys in the headers CC and BCC, over AMQP and gRPC, and `user_id` over AMQP."""

from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, UnroutableError

import penstock
from support import Broker
from support.broker import free_ports

SECONDS_MAX = 30
SECRET = "secret"


@pytest.fixture(scope="module")
def amqp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int]]:
    """Return a broker and the port of its AMQP listener."""
    port = free_ports(1)[0]
    with Broker(tmp_path_factory.mktemp("sender-keys") / "data", "--amqp", f"127.0.0.1:{port}") as broker:
        yield broker, port


def connected(port: int, user: str = "guest", password: str = "guest") -> pika.BlockingConnection:
    credentials = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", port, "/", credentials, socket_timeout=SECONDS_MAX)
    )


@pytest.fixture
def channel(amqp: tuple[Broker, int]) -> Iterator[BlockingChannel]:
    """Return a channel that confirms, with the empty queues a, b and c."""
    with connected(amqp[1]) as connection:
        opened = connection.channel()
        opened.confirm_delivery()
        for queue in "abc":
            opened.queue_declare(queue)
            opened.queue_purge(queue)
        yield opened


@pytest.fixture
def admin(amqp: tuple[Broker, int]) -> Iterator[penstock.Connection]:
    with penstock.connect(amqp[0].uri()) as connection:
        yield connection


def got(channel: BlockingChannel, queue: str) -> list[tuple[bytes, dict[str, Any] | None]]:
    """Return the bodies and headers of all messages of a queue."""
    found: list[tuple[bytes, dict[str, Any] | None]] = []
    while True:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append((body, properties.headers))


def with_headers(**headers: Any) -> pika.BasicProperties:
    return pika.BasicProperties(headers=headers)


def test_a_message_reaches_the_queues_of_all_its_keys_once_and_bcc_is_removed(channel: BlockingChannel) -> None:
    sent = with_headers(CC=["b", "a", "nobody"], BCC=["c", "b"], n=1)

    channel.basic_publish("", "a", b"letter", sent, mandatory=True)

    delivered = [(b"letter", {"CC": ["b", "a", "nobody"], "n": 1})]
    assert [got(channel, queue) for queue in "abc"] == [delivered, delivered, delivered]


def test_a_blind_copy_alone_makes_a_message_routable(channel: BlockingChannel) -> None:
    channel.basic_publish("", "nobody", b"blind", with_headers(BCC=["a"]), mandatory=True)
    assert got(channel, "a") == [(b"blind", {})]

    with pytest.raises(UnroutableError) as raised:
        channel.basic_publish("", "nobody", b"lost", with_headers(CC=["nobody, too"]), mandatory=True)
    assert [message.body for message in raised.value.messages] == [b"lost"]


def test_a_topic_exchange_matches_every_key(channel: BlockingChannel) -> None:
    channel.queue_bind("a", "amq.topic", "order.#")
    channel.queue_bind("b", "amq.topic", "audit.*")

    channel.basic_publish("amq.topic", "order.new", b"both", with_headers(CC=["audit.order", "order.copy"]))
    channel.basic_publish("amq.topic", "order.new", b"one")

    assert [body for body, _ in got(channel, "a")] == [b"both", b"one"]
    assert [body for body, _ in got(channel, "b")] == [b"both"]
    channel.queue_unbind("a", "amq.topic", "order.#")
    channel.queue_unbind("b", "amq.topic", "audit.*")


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"CC": "b"}, 'invalid message: {unacceptable_type_in_header,"CC",longstr}'),
        ({"BCC": {"b": 1}}, 'invalid message: {unacceptable_type_in_header,"BCC",table}'),
        ({"CC": ["b"] * 200, "BCC": ["c"] * 57}, "invalid message: the headers CC and BCC name 257 routing keys"),
        ({"CC": ["b" * 256]}, "invalid message: a routing key in CC or BCC has 256 bytes"),
    ],
)
def test_headers_that_name_no_keys_or_too_many_are_refused(
    channel: BlockingChannel, amqp: tuple[Broker, int], headers: dict[str, Any], text: str
) -> None:
    with pytest.raises(ChannelClosedByBroker) as raised:
        channel.basic_publish("", "a", b"refused", with_headers(**headers))

    assert raised.value.reply_code == 406
    assert raised.value.reply_text.startswith(f"PRECONDITION_FAILED - {text}")
    with connected(amqp[1]) as other:
        assert got(other.channel(), "a") == []


def test_every_key_needs_the_users_topic_permission(
    channel: BlockingChannel, amqp: tuple[Broker, int], admin: penstock.Connection
) -> None:
    channel.queue_bind("a", "amq.topic", "#")
    admin.admin.put_user("anna", SECRET)
    admin.admin.set_permission("anna", "/", ".*", ".*", ".*")
    admin.admin.set_topic_permission("anna", "amq.topic", write=r"anna\..*")

    with connected(amqp[1], "anna", SECRET) as connection:
        hers = connection.channel()
        hers.confirm_delivery()
        hers.basic_publish("amq.topic", "anna.x", b"hers", with_headers(CC=["anna.y"]))
        with pytest.raises(ChannelClosedByBroker) as raised:
            hers.basic_publish("amq.topic", "anna.x", b"not hers", with_headers(BCC=["ben.x"]))

    assert raised.value.reply_code == 403
    assert [body for body, _ in got(channel, "a")] == [b"hers"]
    channel.queue_unbind("a", "amq.topic", "#")
    admin.admin.delete_user("anna")


def test_the_headers_count_over_grpc_as_well(channel: BlockingChannel, admin: penstock.Connection) -> None:
    headers: dict[str, Any] = {"CC": ["b"], "BCC": ["c"]}
    admin.publish(b"letter", routing_key="a", properties=penstock.Properties(headers=headers))

    assert [got(channel, queue) for queue in "abc"] == [[(b"letter", {"CC": ["b"]})]] * 3
    with pytest.raises(penstock.PreconditionFailedError, match="unacceptable_type_in_header"):
        admin.publish(b"refused", routing_key="a", properties=penstock.Properties(headers={"CC": 1}))


def test_a_message_with_another_users_name_closes_the_channel_unless_its_user_impersonates(
    channel: BlockingChannel, amqp: tuple[Broker, int], admin: penstock.Connection
) -> None:
    admin.admin.put_user("ben", SECRET)
    admin.admin.set_permission("ben", "/", ".*", ".*", ".*")

    with connected(amqp[1], "ben", SECRET) as connection:
        refused = connection.channel()
        refused.confirm_delivery()
        refused.basic_publish("", "a", b"his", pika.BasicProperties(user_id="ben"))
        with pytest.raises(ChannelClosedByBroker) as raised:
            refused.basic_publish("", "a", b"forged", pika.BasicProperties(user_id="guest"))
        admin.admin.put_user("ben", None, ["impersonator"])
        allowed = connection.channel()
        allowed.confirm_delivery()
        allowed.basic_publish("", "a", b"for guest", pika.BasicProperties(user_id="guest"))

    text = "PRECONDITION_FAILED - user_id property set to 'guest' but authenticated user was 'ben'"
    assert (raised.value.reply_code, raised.value.reply_text.startswith(text)) == (406, True)
    assert [body for body, _ in got(channel, "a")] == [b"his", b"for guest"]
    admin.admin.delete_user("ben")
