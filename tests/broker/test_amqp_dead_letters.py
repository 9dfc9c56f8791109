"""Dead letters and delivery counts as an AMQP client sees them, with pika."""

from collections.abc import Iterator
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from support import Broker
from support.broker import free_ports
from support.waiting import eventually


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port = free_ports(1)[0]
    with Broker(tmp_path_factory.mktemp("amqp") / "data", "--amqp", f"127.0.0.1:{port}"):
        yield port


@pytest.fixture
def channel(port: int) -> Iterator[BlockingChannel]:
    parameters = pika.ConnectionParameters("127.0.0.1", port, socket_timeout=60, blocked_connection_timeout=60)
    connection = pika.BlockingConnection(parameters)
    yield connection.channel()
    connection.close()


def got(channel: BlockingChannel, queue: str) -> tuple[Any, Any, bytes]:
    """Get the next message, which comes soon, and leave it unacked."""
    found: list[tuple[Any, Any, bytes]] = []

    def get() -> bool:
        method, properties, body = channel.basic_get(queue)
        if method is not None:
            found.append((method, properties, body))
        return method is not None

    eventually(get, True, 60)
    return found[0]


def test_a_rejected_message_has_the_headers_that_clients_read(channel: BlockingChannel) -> None:
    channel.exchange_declare("dlx", "topic")
    channel.queue_declare("dead", durable=True)
    channel.queue_bind("dead", "dlx", "orders.#")
    channel.queue_declare("orders", durable=True, arguments={"x-dead-letter-exchange": "dlx"})
    channel.queue_bind("orders", "amq.topic", "orders.*")
    properties = pika.BasicProperties(content_type="text/plain", headers={"n": 1}, delivery_mode=2, expiration="60000")
    channel.basic_publish("amq.topic", "orders.new", b"hello", properties)

    method, _, _ = got(channel, "orders")
    channel.basic_reject(method.delivery_tag, requeue=False)
    method, received, body = got(channel, "dead")
    channel.basic_ack(method.delivery_tag)

    assert (body, method.exchange, method.routing_key) == (b"hello", "dlx", "orders.new")
    assert (received.content_type, received.delivery_mode, received.expiration) == ("text/plain", 2, None)
    [entry] = received.headers.pop("x-death")
    assert entry.pop("time") is not None
    assert entry == {
        "count": 1,
        "reason": "rejected",
        "queue": "orders",
        "exchange": "amq.topic",
        "routing-keys": ["orders.new"],
        "original-expiration": "60000",
    }
    of_death = {"reason": "rejected", "queue": "orders", "exchange": "amq.topic"}
    first = {f"x-first-death-{name}": value for name, value in of_death.items()}
    last = {f"x-last-death-{name}": value for name, value in of_death.items()}
    assert received.headers == {"n": 1, **first, **last}


def test_the_keys_of_cc_are_routed_by_unless_the_queue_has_a_key(channel: BlockingChannel) -> None:
    for name in ("one", "two"):
        channel.queue_declare(name, durable=True)
    channel.queue_declare("keeps", durable=True, arguments={"x-dead-letter-exchange": "amq.direct"})
    replaced = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "one"}
    channel.queue_declare("replaces", durable=True, arguments=replaced)
    channel.queue_bind("one", "amq.direct", "keeps")
    channel.queue_bind("two", "amq.direct", "also")
    for queue in ("keeps", "replaces"):
        channel.basic_publish("", queue, queue.encode(), pika.BasicProperties(headers={"CC": ["also"]}))
        method, _, _ = got(channel, queue)
        channel.basic_nack(method.delivery_tag, requeue=False)
        method, received, body = got(channel, "one")
        channel.basic_ack(method.delivery_tag)
        assert (body, received.headers["x-death"][0]["routing-keys"]) == (queue.encode(), [queue, "also"])
        assert ("CC" in received.headers) == (queue == "keeps")

    method, _, body = got(channel, "two")
    channel.basic_ack(method.delivery_tag)
    assert body == b"keeps"
    assert channel.basic_get("two")[0] is None


def test_a_queue_with_a_limit_counts_deliveries(channel: BlockingChannel) -> None:
    channel.queue_declare("last", durable=True)
    limited = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "last", "x-delivery-limit": 2}
    channel.queue_declare("limited", durable=True, arguments=limited)
    channel.queue_declare("unlimited", durable=True)
    for queue in ("limited", "unlimited"):
        channel.basic_publish("", queue, b"x")

    for count in range(3):
        method, properties, _ = got(channel, "limited")
        assert (properties.headers or {}).get("x-delivery-count") == (count or None)
        assert method.redelivered == (count > 0)
        channel.basic_reject(method.delivery_tag, requeue=True)
        method, properties, _ = got(channel, "unlimited")
        assert "x-delivery-count" not in (properties.headers or {})
        channel.basic_reject(method.delivery_tag, requeue=True)

    method, properties, _ = got(channel, "last")
    assert properties.headers["x-first-death-reason"] == "delivery_limit"
    assert "x-delivery-count" not in properties.headers
    channel.basic_ack(method.delivery_tag)


def test_headers_that_nearly_fill_a_frame_reach_the_consumer_of_dead_letters(channel: BlockingChannel) -> None:
    """All properties of such a message were lost, because those of its death have no space beside them."""
    channel.queue_declare("full-dead", durable=True)
    to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "full-dead", "x-delivery-limit": 9}
    channel.queue_declare("full", durable=True, arguments=to_dead)
    own = {"own": "x" * 130_900}
    channel.basic_publish("", "full", b"x", pika.BasicProperties(content_type="text/plain", headers=own))

    channel.basic_reject(got(channel, "full")[0].delivery_tag, requeue=True)
    method, again, _ = got(channel, "full")
    channel.basic_reject(method.delivery_tag, requeue=False)
    method, letter, _ = got(channel, "full-dead")
    channel.basic_ack(method.delivery_tag)

    for received in (again, letter):
        assert (received.content_type, received.headers["own"]) == ("text/plain", own["own"])
    assert "x-death" not in letter.headers


def test_a_quorum_queue_counts_the_failures_of_its_consumers_alone(channel: BlockingChannel, port: int) -> None:
    to_last = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "failed", "x-delivery-limit": 2}
    channel.queue_declare("failed", durable=True)
    channel.queue_declare("quorum", durable=True, arguments={"x-queue-type": "quorum", **to_last})
    channel.basic_publish("", "quorum", b"bad")
    is_redelivered = False
    for _ in range(5):
        method, properties, _ = got(channel, "quorum")
        assert (method.redelivered, properties.headers) == (is_redelivered, None)
        channel.basic_nack(method.delivery_tag, requeue=True)
        is_redelivered = True

    channel.basic_reject(got(channel, "quorum")[0].delivery_tag, requeue=True)
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, socket_timeout=60)) as lost:
        _, properties, _ = got(lost.channel(), "quorum")
        assert properties.headers == {"x-delivery-count": 1}
    method, properties, _ = got(channel, "quorum")
    assert properties.headers == {"x-delivery-count": 2}
    channel.basic_nack(method.delivery_tag, requeue=True)
    channel.basic_reject(got(channel, "quorum")[0].delivery_tag, requeue=True)

    _, properties, _ = got(channel, "failed")
    assert properties.headers["x-first-death-reason"] == "delivery_limit"


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_messages_that_a_full_queue_refuses_are_dead_letters(channel: BlockingChannel, kind: str) -> None:
    full, refused = f"dlx-{kind}", f"refused-{kind}"
    channel.queue_declare(refused, durable=True)
    arguments = {
        "x-queue-type": kind,
        "x-max-length": 1,
        "x-overflow": "reject-publish-dlx",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": refused,
    }
    channel.queue_declare(full, durable=True, arguments=arguments)
    channel.confirm_delivery()
    properties = pika.BasicProperties(delivery_mode=2, headers={"n": 1})
    channel.basic_publish("", full, b"fits", properties)

    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", full, b"too many", properties)

    method, received, body = got(channel, refused)
    assert (body, received.headers["n"], received.headers["x-first-death-queue"]) == (b"too many", 1, full)
    assert received.headers["x-first-death-reason"] == "maxlen"
    channel.basic_ack(method.delivery_tag)
    assert got(channel, full)[2] == b"fits"
    assert channel.basic_get(full)[0] is None
