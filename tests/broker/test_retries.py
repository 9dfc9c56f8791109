"""Retries with back-off as clients see them: by arguments and policies, over AMQP and gRPC, and over a kill.

Delays are either so short that a test waits for their end, or so long that they do not end in it.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import penstock
from penstock.client.values import Value
from support import Broker
from support.broker import free_ports
from support.waiting import eventually

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int]]:
    port = free_ports(1)[0]
    with Broker(tmp_path_factory.mktemp("retries") / "data", "--amqp", f"127.0.0.1:{port}") as broker:
        yield broker, port


def connected(port: int) -> pika.BlockingConnection:
    parameters = pika.ConnectionParameters("127.0.0.1", port, socket_timeout=60, blocked_connection_timeout=60)
    return pika.BlockingConnection(parameters)


@pytest.fixture
def channel(served: tuple[Broker, int]) -> Iterator[BlockingChannel]:
    connection = connected(served[1])
    yield connection.channel()
    connection.close()


@pytest.fixture
def grpc(served: tuple[Broker, int]) -> Iterator[penstock.Connection]:
    with penstock.connect(served[0].uri()) as connection:
        yield connection


def published(channel: BlockingChannel, queue: str, *bodies: bytes, **arguments: object) -> None:
    channel.queue_declare(queue, durable=True, arguments=arguments)
    channel.confirm_delivery()
    for body in bodies:
        channel.basic_publish("", queue, body)


def got(channel: BlockingChannel, queue: str) -> tuple[int, bytes]:
    """Get the next message, which comes soon, and leave it unacked."""
    found: list[tuple[int, bytes]] = []

    def get() -> bool:
        method, _, body = channel.basic_get(queue)
        if method is not None:
            found.append((method.delivery_tag, body))
        return method is not None

    eventually(get, True, 60)
    return found[0]


def numbers(grpc: penstock.Connection, queue: str) -> tuple[int, int, int]:
    """Return how many are ready, how many of these wait, and how many are unacked."""
    found = grpc.admin.get_queue(queue)
    return found.ready_count, found.delayed_count, found.unacked_count


def test_a_message_waits_longer_each_time_it_comes_back(channel: BlockingChannel, grpc: penstock.Connection) -> None:
    published(channel, "jobs", b"bad", b"good", **{"x-retry-backoff": [1, 2, HOUR_MS]})

    for _ in range(2):
        tag, body = got(channel, "jobs")
        while body != b"bad":
            channel.basic_ack(tag)
            tag, body = got(channel, "jobs")
        channel.basic_nack(tag)
    tag, body = got(channel, "jobs")
    if body == b"good":
        channel.basic_ack(tag)
        tag, body = got(channel, "jobs")
    channel.basic_nack(tag)

    eventually(lambda: numbers(grpc, "jobs")[1], 1, 60)
    assert body == b"bad"


@pytest.mark.parametrize(("kind", "waiting"), [("all", 3), ("failed", 2), ("returned", 1), ("disabled", 0)])
def test_the_type_says_who_waits(
    served: tuple[Broker, int], channel: BlockingChannel, grpc: penstock.Connection, kind: str, waiting: int
) -> None:
    linear = {"x-delayed-retry-type": kind, "x-delayed-retry-min": HOUR_MS, "x-delayed-retry-max": 2 * HOUR_MS}
    published(channel, kind, b"rejected", b"requeued", b"lost", **linear)
    lost = connected(served[1])
    other = lost.channel()
    tags = [got(other, kind)[0] for _ in range(3)]

    other.basic_reject(tags[0], requeue=True)
    other.basic_nack(tags[1], requeue=True)
    lost.close()

    eventually(lambda: numbers(grpc, kind), (3, waiting, 0), 60)


def test_a_policy_counts_for_the_next_messages_that_come_back(
    channel: BlockingChannel, grpc: penstock.Connection
) -> None:
    published(channel, "ruled", b"a", b"b")
    channel.basic_nack(got(channel, "ruled")[0])
    assert numbers(grpc, "ruled")[1] == 0

    grpc.admin.set_policy("retries", "^ruled$", {"retry-backoff": [HOUR_MS]}, apply_to="queues")
    message = grpc.get("ruled")
    assert message is not None
    message.nack()
    eventually(lambda: numbers(grpc, "ruled"), (2, 1, 0), 60)

    grpc.admin.delete_policy("retries")
    channel.basic_nack(got(channel, "ruled")[0])
    eventually(lambda: numbers(grpc, "ruled"), (2, 1, 0), 60)


def test_definitions_keep_the_schedule(grpc: penstock.Connection) -> None:
    arguments: dict[str, Value] = {"x-delayed-retry-type": "failed", "x-retry-backoff": [10, 20]}
    grpc.declare_queue("defined", arguments=arguments)

    exported = json.loads(grpc.admin.export_definitions())

    found = [queue for queue in exported["queues"] if queue["name"] == "defined"]
    assert found[0]["arguments"] == arguments


@pytest.mark.parametrize(
    ("arguments", "way_out"),
    [
        ({"x-delayed-retry-type": "often"}, "use disabled or all or failed or returned"),
        ({"x-retry-backoff": 5}, "send a list of 1 to 100 numbers of milliseconds"),
        ({"x-retry-backoff": [5], "x-queue-type": "stream"}, "that streams do not support"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(
    grpc: penstock.Connection, arguments: dict[str, Value], way_out: str
) -> None:
    with pytest.raises(penstock.PenstockError, match=way_out):
        grpc.declare_queue("never", arguments=arguments)


def test_waiting_messages_keep_their_times_over_a_kill(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    with Broker(tmp_path / "data", "--amqp", f"127.0.0.1:{port}") as broker:
        before = connected(port)
        channel = before.channel()
        published(channel, "soon", b"soon", **{"x-retry-backoff": [1_000]})
        published(channel, "late", b"late", **{"x-retry-backoff": [HOUR_MS]})
        for queue in ("soon", "late"):
            channel.basic_nack(got(channel, queue)[0])
        with penstock.connect(broker.uri()) as connection:
            eventually(lambda: numbers(connection, "late"), (1, 1, 0), 60)

        broker.kill()
        with suppress(pika.exceptions.AMQPError):
            before.close()
        broker.start()

        after = connected(port)
        assert got(after.channel(), "soon")[1] == b"soon"
        with penstock.connect(broker.uri()) as connection:
            assert numbers(connection, "late") == (1, 1, 0)
            assert connection.get("late") is None
        after.close()
