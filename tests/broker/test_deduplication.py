"""Messages that a queue or an exchange has seen before, over AMQP, gRPC and the command line, and across kills."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

import penstock
from support import Broker
from support.broker import free_ports, penstock_command

SECONDS_MAX = 60
ID = "x-deduplication-header"
DEDUPLICATED = {"x-message-deduplication": True, "x-cache-size": 4}


@pytest.fixture
def amqp(tmp_path: Path) -> Iterator[tuple[Broker, int]]:
    """Return a broker and the port of its AMQP listener."""
    port = free_ports(1)[0]
    with Broker(tmp_path / "data", "--amqp", f"127.0.0.1:{port}") as broker:
        yield broker, port


@pytest.fixture
def broker(amqp: tuple[Broker, int]) -> Broker:
    return amqp[0]


@pytest.fixture
def opened(amqp: tuple[Broker, int]) -> Iterator[Callable[[], BlockingChannel]]:
    """Return what opens a channel that confirms; its connection may end with the broker."""
    connections: list[pika.BlockingConnection] = []

    def open_one() -> BlockingChannel:
        parameters = pika.ConnectionParameters("127.0.0.1", amqp[1], socket_timeout=SECONDS_MAX)
        connections.append(pika.BlockingConnection(parameters))
        channel = connections[-1].channel()
        channel.confirm_delivery()
        return channel

    yield open_one
    for connection in connections:
        with suppress(AMQPError):
            connection.close()


def send(channel: BlockingChannel, key: str, headers: dict[str, Any], exchange: str = "", body: bytes = b"x") -> None:
    """Publish a message, and fail unless it is confirmed and does not return."""
    properties = pika.BasicProperties(headers=headers, delivery_mode=2)
    channel.basic_publish(exchange, key, body, properties, mandatory=True)


def counts(broker: Broker, queue: str) -> tuple[int, int]:
    """Return how many messages are ready, and how many repetitions were recognized since the start."""
    with penstock.connect(broker.uri()) as connection:
        found = {each.name: each for each in connection.admin.list_queues()}[queue]
    return found.ready_count, found.deduplicated_count


def test_a_repetition_is_confirmed_and_not_stored_until_newer_ids_took_its_place(
    broker: Broker, opened: Callable[[], BlockingChannel]
) -> None:
    channel = opened()
    channel.queue_declare("orders", durable=True, arguments=DEDUPLICATED)

    for number in [1, 1, 2, 3, 4, 1]:
        send(channel, "orders", {ID: f"order {number}"})
    assert counts(broker, "orders") == (4, 2)
    send(channel, "orders", {ID: "order 5"})
    send(channel, "orders", {ID: "order 1"})
    send(channel, "orders", {})
    send(channel, "orders", {})

    assert counts(broker, "orders") == (8, 2)
    assert "penstock_messages_deduplicated_total 2" in broker.scrape()


def test_what_was_seen_is_as_it_was_after_a_kill_and_after_a_stop(
    broker: Broker, opened: Callable[[], BlockingChannel]
) -> None:
    channel = opened()
    channel.queue_declare("orders", durable=True, arguments=DEDUPLICATED)
    channel.exchange_declare(
        "news", "fanout", durable=True, arguments=DEDUPLICATED | {"x-deduplication-header": "news"}
    )
    channel.queue_bind("orders", "news")
    for number in range(1, 7):
        send(channel, "orders", {ID: number})
        send(channel, "", {"news": number}, "news")
    # What was consumed is remembered, too.
    while channel.basic_get("orders", auto_ack=True)[0] is not None:
        pass

    for end in (broker.kill, broker.stop):
        end()
        broker.start()
        channel = opened()
        for number in range(3, 7):
            send(channel, "orders", {ID: number})
            send(channel, "", {"news": number}, "news")
        assert counts(broker, "orders") == (0, 4)

    send(channel, "orders", {ID: 1})
    send(channel, "", {"news": 1}, "news")
    assert counts(broker, "orders") == (2, 4)


def test_an_id_is_forgotten_after_the_time_of_the_message_or_of_the_queue(
    broker: Broker, opened: Callable[[], BlockingChannel]
) -> None:
    channel = opened()
    channel.queue_declare("short", durable=True, arguments=DEDUPLICATED | {"x-cache-ttl": 0})
    channel.queue_declare("long", durable=True, arguments=DEDUPLICATED)

    for headers in ({ID: "a"}, {ID: "a"}, {ID: "a", "x-cache-ttl": 600_000}, {ID: "a"}):
        send(channel, "short", headers)
    assert counts(broker, "short") == (3, 1)

    for headers in ({ID: "b", "x-cache-ttl": 0}, {ID: "b"}, {ID: "b"}):
        send(channel, "long", headers)
    assert counts(broker, "long") == (2, 1)


def test_a_policy_makes_a_queue_and_an_exchange_recognize_repetitions(
    broker: Broker, opened: Callable[[], BlockingChannel]
) -> None:
    channel = opened()
    channel.queue_declare("jobs.a", durable=True)
    channel.queue_declare("plain", durable=True)
    channel.exchange_declare("jobs.x", "direct", durable=True)
    channel.queue_bind("plain", "jobs.x", "k")
    with penstock.connect(broker.uri()) as connection:
        definition: dict[str, penstock.Value] = {"message-deduplication": True, "deduplication-header": "job"}
        connection.admin.set_policy("once", "^jobs", definition)
        for _ in range(3):
            send(channel, "jobs.a", {"job": "1"})
            send(channel, "k", {"job": "1"}, "jobs.x")
        assert (counts(broker, "jobs.a"), counts(broker, "plain")) == ((1, 2), (1, 0))
        connection.admin.delete_policy("once")
    for _ in range(2):
        send(channel, "jobs.a", {"job": "1"})

    assert counts(broker, "jobs.a") == (3, 0)


def test_publishers_over_grpc_are_recognized_and_the_command_line_shows_it(broker: Broker) -> None:
    uri = broker.uri()
    declare = [penstock_command(), "queue", "declare", "q", "--argument", "x-message-deduplication=true", "--uri", uri]
    subprocess.run(declare, check=True)
    with penstock.connect(uri) as connection:
        for _ in range(3):
            connection.publish(b"x", routing_key="q", properties=penstock.Properties(headers={ID: "a"}))

    listed = subprocess.run(
        [penstock_command(), "queue", "list", "q", "--output", "json", "--uri", uri],
        check=True,
        capture_output=True,
        text=True,
    )
    [row] = json.loads(listed.stdout)
    assert (row["ready_count"], row["deduplicated_count"]) == (1, 2)


def test_a_dead_letter_that_comes_back_is_no_repetition(broker: Broker, opened: Callable[[], BlockingChannel]) -> None:
    channel = opened()
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"}
    channel.queue_declare("orders", durable=True, arguments=DEDUPLICATED)
    channel.queue_declare("wait", durable=True, arguments=letters | {"x-message-ttl": 1})
    send(channel, "orders", {ID: "a"})
    method, properties, _ = channel.basic_get("orders", auto_ack=True)
    assert method is not None

    send(channel, "wait", properties.headers)

    delivered, _, body = next(channel.consume("orders", inactivity_timeout=SECONDS_MAX))
    assert (delivered is not None, body) == (True, b"x")
