"""Exchanges that keep their last messages, over AMQP, gRPC and the command line, and through kills of a real broker."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, UnroutableError

import penstock
from support import Broker
from support.broker import free_ports, penstock_command

SECONDS_MAX = 60
KIND = "x-recent-history"


@pytest.fixture(scope="module")
def amqp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int]]:
    """Return a broker and the port of its AMQP listener."""
    port = free_ports(1)[0]
    with Broker(tmp_path_factory.mktemp("history") / "data", "--amqp", f"127.0.0.1:{port}") as broker:
        yield broker, port


@pytest.fixture
def channel(amqp: tuple[Broker, int]) -> Iterator[BlockingChannel]:
    """Return a channel that confirms, an exchange that keeps three messages, and the empty queues q1 and q2."""
    parameters = pika.ConnectionParameters("127.0.0.1", amqp[1], socket_timeout=SECONDS_MAX)
    with pika.BlockingConnection(parameters) as connection:
        opened = connection.channel()
        opened.confirm_delivery()
        opened.exchange_declare("chat", KIND, durable=True, arguments={"x-recent-history-length": 3})
        for queue in ("q1", "q2"):
            opened.queue_declare(queue, durable=True)
        yield opened
    with pika.BlockingConnection(parameters) as connection:
        closing = connection.channel()
        closing.exchange_delete("chat")
        for queue in ("q1", "q2"):
            closing.queue_delete(queue)


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    found: list[bytes] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append(body)


def take_all(connection: penstock.Connection, queue: str) -> list[bytes]:
    found = []
    while (message := connection.get(queue, auto_ack=True)) is not None:
        found.append(message.body)
    return found


def test_a_queue_that_is_bound_gets_the_last_messages_and_then_new_ones(channel: BlockingChannel) -> None:
    for number in range(5):
        with pytest.raises(UnroutableError):
            channel.basic_publish("chat", "any key", b"%d" % number, mandatory=True)
    headers = {"x-recent-history-no-store": True}
    channel.basic_publish("chat", "", b"passes", pika.BasicProperties(headers=headers))
    channel.queue_bind("q1", "chat", "another key")
    channel.queue_bind("q1", "chat", "a second key")
    channel.basic_publish("chat", "", b"5", mandatory=True)
    channel.queue_bind("q2", "chat")

    assert bodies(channel, "q1") == [b"2", b"3", b"4", b"5"]
    assert bodies(channel, "q2") == [b"3", b"4", b"5"]


def test_copies_have_the_key_and_the_properties_of_the_message(channel: BlockingChannel) -> None:
    sent = pika.BasicProperties(content_type="text/plain", headers={"a": 1}, message_id="m", priority=4)
    channel.basic_publish("chat", "greeting", b"hello", sent)
    channel.queue_bind("q1", "chat")

    method, properties, body = channel.basic_get("q1", auto_ack=True)

    assert method is not None
    assert (method.exchange, method.routing_key, body) == ("chat", "greeting", b"hello")
    assert (properties.content_type, properties.headers, properties.message_id) == ("text/plain", {"a": 1}, "m")
    assert properties.priority == 4


def test_expired_messages_are_not_copied_and_an_exchange_passes_copies_on(channel: BlockingChannel) -> None:
    channel.exchange_declare("topics", "topic", auto_delete=True)
    channel.queue_bind("q1", "topics", "a.*")
    channel.queue_bind("q2", "topics", "#")
    channel.basic_publish("chat", "a.b", b"over", pika.BasicProperties(expiration="0"))
    channel.basic_publish("chat", "a.b", b"both", pika.BasicProperties(expiration="3600000"))
    channel.basic_publish("chat", "b", b"one")

    channel.exchange_bind("topics", "chat")

    assert bodies(channel, "q1") == [b"both"]
    assert bodies(channel, "q2") == [b"both", b"one"]


def test_a_transaction_is_kept_when_it_is_committed(amqp: tuple[Broker, int], channel: BlockingChannel) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp[1])) as connection:
        transacting = connection.channel()
        transacting.tx_select()
        transacting.basic_publish("chat", "", b"rolled back")
        transacting.tx_rollback()
        transacting.basic_publish("chat", "", b"committed")
        transacting.tx_commit()
    channel.queue_bind("q1", "chat")

    assert bodies(channel, "q1") == [b"committed"]


@pytest.mark.parametrize("length", [0, 1_001, "many"])
def test_another_length_is_refused(channel: BlockingChannel, length: Any) -> None:
    with pytest.raises(ChannelClosedByBroker, match=r"'x-recent-history-length' whose value .* is not valid") as raised:
        channel.exchange_declare("refused", KIND, arguments={"x-recent-history-length": length})
    assert raised.value.reply_code == 406


def test_what_is_kept_is_in_no_list_and_definitions_have_the_exchange(amqp: tuple[Broker, int]) -> None:
    def run(*arguments: str) -> Any:
        command = [penstock_command(), *arguments, "--uri", amqp[0].uri(), "--output", "json"]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout or "null")

    run("exchange", "declare", "kept", "--type", KIND, "--argument", "x-recent-history-length=7")
    with penstock.connect(amqp[0].uri()) as connection:
        connection.publish_many([b"1", b"2"], exchange="kept")
        assert connection.admin.list_queues() == []
        (found,) = [each for each in connection.admin.list_exchanges() if each.name == "kept"]
        assert (found.type, found.arguments) == (KIND, {"x-recent-history-length": 7})
        exported = json.loads(connection.admin.export_definitions())
        (exchange,) = [each for each in exported["exchanges"] if each["name"] == "kept"]
        assert (exchange["type"], exchange["arguments"]) == (KIND, {"x-recent-history-length": 7})
        connection.delete_exchange("kept")


@pytest.mark.parametrize("shards", [1, 3])
def test_kills_lose_and_double_nothing_of_a_history(tmp_path: Path, shards: int) -> None:
    """Each round publishes, kills the broker, and binds another queue, while earlier queues have what they got."""
    with Broker(tmp_path / "data", shards=shards) as broker:
        with penstock.connect(broker.uri()) as connection:
            connection.declare_exchange("chat", KIND, arguments={"x-recent-history-length": 4})
        sent: list[bytes] = []
        expected: dict[str, list[bytes]] = {}
        for round_ in range(5):
            with penstock.connect(broker.uri()) as connection:
                bodies = [b"%d.%d" % (round_, number) for number in range(3)]
                connection.publish_many(bodies, exchange="chat")
                sent += bodies
                for earlier in expected.values():
                    earlier.extend(bodies)
            broker.kill()
            broker.start()
            queue = f"q{round_}"
            with penstock.connect(broker.uri()) as connection:
                connection.declare_queue(queue)
                connection.bind_queue(queue, "chat")
                expected[queue] = sent[-4:]
        broker.kill()
        broker.start()
        with penstock.connect(broker.uri()) as connection:
            assert {queue: take_all(connection, queue) for queue in expected} == expected


def test_a_transient_exchange_and_a_deleted_one_keep_nothing(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        for is_durable in (False, True):
            with penstock.connect(broker.uri()) as connection:
                connection.declare_exchange("chat", KIND, durable=is_durable)
                connection.publish_many([b"1"], exchange="chat")
                if is_durable:
                    connection.delete_exchange("chat")
            broker.kill()
            broker.start()
            with penstock.connect(broker.uri()) as connection:
                connection.declare_exchange("chat", KIND)
                connection.declare_queue("q")
                connection.bind_queue("q", "chat")
                assert take_all(connection, "q") == []
                connection.delete_exchange("chat")
