"""Transactions over AMQP with pika: publishes and settlements count together, at the commit, or not at all."""

from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

import penstock
from support import Broker
from support.broker import free_ports
from support.waiting import eventually


@pytest.fixture(scope="module")
def amqp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int]]:
    """Return a broker and the port of its AMQP listener."""
    port = free_ports(1)[0]
    with Broker(tmp_path_factory.mktemp("amqp") / "data", "--amqp", f"127.0.0.1:{port}", shards=1) as broker:
        yield broker, port


@pytest.fixture
def channel(amqp: tuple[Broker, int]) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(parameters(amqp[1]))
    yield connection.channel()
    if connection.is_open:
        connection.close()


def parameters(port: int, vhost: str = "/") -> pika.ConnectionParameters:
    return pika.ConnectionParameters("127.0.0.1", port, vhost, socket_timeout=60, blocked_connection_timeout=60)


def another(channel: BlockingChannel) -> BlockingChannel:
    """Open another channel, which has no transactions."""
    return channel.connection.channel()


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    """Get what is ready in a queue, and ack it."""
    found: list[bytes] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append(body)


def counts(amqp: tuple[Broker, int], queue: str) -> tuple[int, int]:
    with penstock.connect(amqp[0].uri()) as root:
        found = root.admin.get_queue(queue)
        return found.ready_count, found.unacked_count


def test_messages_are_there_after_the_commit_and_not_before(channel: BlockingChannel) -> None:
    channel.queue_declare("commits", durable=True)
    other = another(channel)
    channel.tx_select()
    channel.tx_select()
    channel.basic_publish("", "commits", b"one", pika.BasicProperties(delivery_mode=2))
    channel.basic_publish("", "commits", b"two")

    # The answer to a declaration shows that both have come.
    assert channel.queue_declare("commits", passive=True).method.message_count == 0
    assert bodies(other, "commits") == []
    channel.tx_commit()
    assert bodies(other, "commits") == [b"one", b"two"]

    channel.basic_publish("", "commits", b"three")
    channel.tx_rollback()
    channel.tx_commit()
    assert bodies(other, "commits") == []


def test_a_rollback_leaves_deliveries_unacked(channel: BlockingChannel, amqp: tuple[Broker, int]) -> None:
    channel.queue_declare("settled", durable=True)
    other = another(channel)
    for body in (b"one", b"two", b"three"):
        other.basic_publish("", "settled", body)
    eventually(lambda: counts(amqp, "settled"), (3, 0), 60)
    channel.tx_select()
    tags = [channel.basic_get("settled")[0].delivery_tag for _ in range(3)]

    channel.basic_ack(tags[0])
    channel.basic_nack(tags[2], multiple=True, requeue=True)
    channel.tx_rollback()
    assert counts(amqp, "settled") == (0, 3)

    channel.basic_ack(tags[0])
    channel.basic_reject(tags[1], requeue=False)
    channel.basic_nack(tags[2], requeue=True)
    channel.tx_commit()
    assert counts(amqp, "settled") == (1, 0)
    method, _, body = channel.basic_get("settled")
    assert (body, method.redelivered) == (b"three", True)
    channel.basic_ack(method.delivery_tag)
    channel.tx_commit()
    assert counts(amqp, "settled") == (0, 0)


def test_a_tag_is_settled_once_in_a_transaction(channel: BlockingChannel, amqp: tuple[Broker, int]) -> None:
    channel.queue_declare("twice", durable=True)
    channel.basic_publish("", "twice", b"one")
    eventually(lambda: counts(amqp, "twice"), (1, 0), 60)
    channel.tx_select()
    method, _, _ = channel.basic_get("twice")
    channel.basic_ack(method.delivery_tag)
    channel.basic_ack(method.delivery_tag)

    with pytest.raises(ChannelClosedByBroker, match=r"406.*unknown delivery tag 1"):
        channel.tx_commit()
    assert counts(amqp, "twice") == (1, 0), "nothing of it was applied"


def test_a_consumer_gets_more_after_the_commit(channel: BlockingChannel, amqp: tuple[Broker, int]) -> None:
    channel.queue_declare("jobs", durable=True)
    channel.queue_declare("results", durable=True)
    for number in range(5):
        channel.basic_publish("", "jobs", str(number).encode())
    channel.tx_select()
    channel.basic_qos(prefetch_count=2)

    taken = []
    for method, _, body in channel.consume("jobs", inactivity_timeout=60):
        assert method is not None
        taken.append(body)
        channel.basic_ack(method.delivery_tag)
        channel.basic_publish("", "results", body)
        if len(taken) % 2 == 0:
            channel.tx_commit()
        if len(taken) == 5:
            break
    # A consumer that is cancelled leaves what its transaction settles.
    channel.cancel()
    channel.tx_commit()

    assert taken == [b"0", b"1", b"2", b"3", b"4"]
    assert (counts(amqp, "jobs"), counts(amqp, "results")) == ((0, 0), (5, 0))


def test_unroutable_messages_return_before_the_commit_is_answered(channel: BlockingChannel) -> None:
    returned: list[tuple[Any, bytes]] = []
    channel.add_on_return_callback(lambda _, method, properties, body: returned.append((method, body)))
    channel.queue_declare("there", durable=True)
    channel.tx_select()
    channel.basic_publish("", "nowhere", b"back", mandatory=True)
    channel.basic_publish("", "there", b"stays", mandatory=True)
    channel.basic_publish("", "nowhere", b"gone")
    channel.connection.process_data_events(0.2)
    assert returned == []

    channel.tx_commit()
    channel.connection.process_data_events(0)

    assert [(method.reply_code, method.routing_key, body) for method, body in returned] == [(312, "nowhere", b"back")]
    assert bodies(another(channel), "there") == [b"stays"]


def test_an_unknown_exchange_undoes_the_transaction(channel: BlockingChannel, amqp: tuple[Broker, int]) -> None:
    channel.queue_declare("kept", durable=True)
    channel.tx_select()
    channel.basic_publish("", "kept", b"x")
    channel.basic_publish("absent", "kept", b"y")

    with pytest.raises(ChannelClosedByBroker, match=r"404.*no exchange 'absent' in vhost '/'"):
        channel.tx_commit()
    assert counts(amqp, "kept") == (0, 0)


def test_a_full_queue_undoes_the_transaction(channel: BlockingChannel, amqp: tuple[Broker, int]) -> None:
    channel.queue_declare("full", durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.queue_declare("beside", durable=True)
    channel.tx_select()
    channel.basic_publish("", "beside", b"x")
    channel.basic_publish("", "full", b"one")
    channel.basic_publish("", "full", b"two")

    with pytest.raises(ChannelClosedByBroker, match=r"406.*has as many messages as it may have"):
        channel.tx_commit()
    assert (counts(amqp, "full"), counts(amqp, "beside")) == ((0, 0), (0, 0))


def test_confirms_and_transactions_exclude_each_other(channel: BlockingChannel) -> None:
    other = another(channel)
    channel.confirm_delivery()
    with pytest.raises(ChannelClosedByBroker, match=r"406.*cannot switch from confirm to tx mode"):
        channel.tx_select()
    other.tx_select()
    with pytest.raises(ChannelClosedByBroker, match=r"406.*cannot switch from tx to confirm mode"):
        other.confirm_delivery()
    plain = another(channel)
    with pytest.raises(ChannelClosedByBroker, match=r"406.*channel is not transactional"):
        plain.tx_commit()
    plain = another(channel)
    with pytest.raises(ChannelClosedByBroker, match=r"406.*channel is not transactional"):
        plain.tx_rollback()


def test_a_transaction_is_bounded(channel: BlockingChannel, amqp: tuple[Broker, int]) -> None:
    channel.queue_declare("many", durable=True)
    channel.tx_select()
    for _ in range(4096):
        channel.basic_publish("", "many", b"")
    channel.tx_commit()
    assert counts(amqp, "many") == (4096, 0)

    for _ in range(4097):
        channel.basic_publish("", "many", b"")
    with pytest.raises(ChannelClosedByBroker, match=r"406.*at most 4096 messages"):
        channel.tx_commit()
    assert counts(amqp, "many") == (4096, 0)


def test_what_came_before_the_first_transaction_is_no_part_of_it(channel: BlockingChannel) -> None:
    channel.queue_declare("before", durable=True)
    channel.basic_publish("", "before", b"one")
    channel.tx_select()
    channel.basic_publish("", "before", b"two")
    channel.tx_rollback()

    assert bodies(another(channel), "before") == [b"one"]


def test_direct_replies_are_sent_at_the_commit(channel: BlockingChannel) -> None:
    answers: list[bytes] = []
    channel.queue_declare("questions", durable=True)
    channel.basic_consume("amq.rabbitmq.reply-to", lambda *delivery: answers.append(delivery[3]), auto_ack=True)
    channel.basic_publish("", "questions", b"?", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
    server = another(channel)
    server.tx_select()
    found: list[tuple[Any, Any]] = []

    def get() -> bool:
        method, properties, _ = server.basic_get("questions")
        if method is not None:
            found.append((method, properties))
        return method is not None

    eventually(get, True, 60)
    [(method, properties)] = found
    server.basic_ack(method.delivery_tag)
    server.basic_publish("", properties.reply_to, b"!")
    channel.connection.process_data_events(0.2)
    assert answers == []

    server.tx_commit()
    channel.connection.process_data_events(0)

    eventually(lambda: channel.connection.process_data_events(0) or answers, [b"!"], 60)


def test_a_channel_that_closes_rolls_back(channel: BlockingChannel, amqp: tuple[Broker, int]) -> None:
    channel.queue_declare("closing", durable=True)
    channel.basic_publish("", "closing", b"one")
    eventually(lambda: counts(amqp, "closing"), (1, 0), 60)
    other = another(channel)
    other.tx_select()
    method, _, _ = other.basic_get("closing")
    other.basic_ack(method.delivery_tag)
    other.basic_publish("", "closing", b"two")
    other.close()

    assert counts(amqp, "closing") == (1, 0)


def test_a_transaction_stays_in_one_shard(amqp: tuple[Broker, int]) -> None:
    broker, port = amqp
    with penstock.connect(broker.uri()) as root:
        root.admin.create_vhost("sharded", shards=2)
        root.admin.set_permission("guest", "sharded", configure=".*", write=".*", read=".*")
    connection = pika.BlockingConnection(parameters(port, "sharded"))
    channel = connection.channel()
    names = ["q0", "q1", "q2"]
    for name in names:
        channel.queue_declare(name, durable=True)
    channel.tx_select()
    channel.basic_publish("", "q0", b"x")
    channel.basic_publish("", "q2", b"x")
    channel.tx_commit()
    channel.basic_publish("", "q0", b"x")
    channel.basic_publish("", "q1", b"x")

    with pytest.raises(ChannelClosedByBroker, match=r"406.*queues 'q0' and 'q1' are in different ones"):
        channel.tx_commit()
    other = connection.channel()
    assert [bodies(other, name) for name in names] == [[b"x"], [], [b"x"]]
    connection.close()
