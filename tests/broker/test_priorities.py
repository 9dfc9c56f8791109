"""Queues with priorities: over the client and the command, restarts and kills."""

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from support import Broker
from support.broker import penstock_command

ARGUMENTS = {"x-max-priority": 10}


def publish(connection: penstock.Connection, priority: int | None, body: bytes, queue: str = "jobs") -> None:
    properties = None if priority is None else penstock.Properties(priority=priority)
    connection.publish(body, routing_key=queue, properties=properties)


def taken(connection: penstock.Connection, queue: str = "jobs") -> list[penstock.Message]:
    """Return all messages of the queue, which has none afterwards."""
    return list(iter(lambda: connection.get(queue, auto_ack=True), None))


@pytest.fixture
def connection(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(vhost)) as connection:
        connection.declare_queue("jobs", arguments=ARGUMENTS)
        yield connection


def test_the_highest_priority_comes_first(connection: penstock.Connection) -> None:
    for priority, body in ((None, b"a"), (3, b"b"), (0, b"c"), (200, b"d"), (3, b"e"), (10, b"f")):
        publish(connection, priority, body)

    assert connection.admin.get_queue("jobs").ready_count == 6
    stream = connection.consume("jobs", prefetch=10, idle_timeout=4)
    found = []
    for message in stream:
        found.append((message.body, message.properties.priority))
        message.ack()

    assert found == [(b"d", 200), (b"f", 10), (b"b", 3), (b"e", 3), (b"a", None), (b"c", 0)]
    assert connection.admin.get_queue("jobs").ready_count == 0


def test_requeued_messages_return_to_their_places(connection: penstock.Connection) -> None:
    for priority, body in ((1, b"a"), (5, b"b"), (5, b"c")):
        publish(connection, priority, body)
    first = connection.get("jobs")
    assert first is not None
    assert first.body == b"b"
    publish(connection, 7, b"d")

    first.nack(requeue=True)

    assert [(each.body, each.redelivered) for each in taken(connection)] == [
        (b"d", False),
        (b"b", True),
        (b"c", False),
        (b"a", False),
    ]


def test_a_consumer_that_waits_gets_messages_of_any_priority(connection: penstock.Connection) -> None:
    stream = connection.consume("jobs", prefetch=1)
    messages = iter(stream)

    for priority in (0, 9, 4):
        publish(connection, priority, str(priority).encode())
        message = next(messages)
        assert message.body == str(priority).encode()
        message.ack()
    stream.close()


def test_a_purge_takes_all_priorities(connection: penstock.Connection) -> None:
    for priority in range(12):
        publish(connection, priority, b"x")

    assert connection.purge_queue("jobs") == 12
    assert taken(connection) == []
    publish(connection, 3, b"y")
    assert [each.body for each in taken(connection)] == [b"y"]


def test_without_the_argument_priorities_are_ignored(connection: penstock.Connection) -> None:
    connection.declare_queue("plain")
    for priority, body in ((0, b"a"), (9, b"b"), (4, b"c")):
        publish(connection, priority, body, "plain")

    assert [each.body for each in taken(connection, "plain")] == [b"a", b"b", b"c"]


def test_another_priority_is_a_mismatch(connection: penstock.Connection) -> None:
    assert connection.declare_queue("jobs", arguments=ARGUMENTS).name == "jobs"
    with pytest.raises(penstock.PreconditionFailedError):
        connection.declare_queue("jobs", arguments={"x-max-priority": 5})
    with pytest.raises(penstock.PreconditionFailedError):
        connection.declare_queue("jobs")


def test_leases_hold_the_highest_priorities_first(connection: penstock.Connection) -> None:
    for priority, body in ((0, b"a"), (9, b"b"), (4, b"c")):
        publish(connection, priority, body)

    assert connection.reserve_lease("jobs", "owner", 1, messages_max=2).lease.message_count == 2

    assert [each.body for each in taken(connection)] == [b"a"]
    assert connection.release_leases("jobs", "owner") == 2
    assert [each.body for each in taken(connection)] == [b"b", b"c"]


def test_priorities_survive_restarts_and_kills(tmp_path: Path) -> None:
    dice = random.Random(7)
    expected: list[tuple[int, bytes]] = []
    for is_killed in (False, True, True):
        with Broker(tmp_path / "data") as own, penstock.connect(own.uri()) as connection:
            connection.declare_queue("jobs", arguments=ARGUMENTS)
            for number in range(30):
                priority, body = dice.randrange(11), f"{len(expected)}-{number}".encode()
                publish(connection, priority, body)
                expected.append((priority, body))
            expected.sort(key=lambda each: -each[0])
            for _ in range(10):
                message = connection.get("jobs", auto_ack=True)
                assert message is not None
                assert message.body == expected.pop(0)[1]
            if is_killed:
                own.kill()
            else:
                own.stop()

    with Broker(tmp_path / "data") as own, penstock.connect(own.uri()) as connection:
        assert connection.admin.get_queue("jobs").ready_count == 60
        assert [each.body for each in taken(connection)] == [body for _, body in expected]
        connection.declare_queue("next")
        publish(connection, 5, b"x", "next")
        assert [each.body for each in taken(connection)] == []


def test_the_command_declares_them(broker: Broker, vhost: str, connection: penstock.Connection) -> None:
    command = [penstock_command(), "queue", "declare", "urgent", "--max-priority", "3", "--uri", broker.uri(vhost)]
    subprocess.run(command, check=True, timeout=60, capture_output=True)

    assert dict(connection.admin.get_queue("urgent").arguments) == {"x-max-priority": 3}
