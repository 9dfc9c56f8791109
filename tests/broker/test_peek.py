"""Looking at ready messages without taking them, and moving them, by the client and the commands."""

import json
import subprocess
from collections.abc import Iterator

import pytest

import penstock
from support import Broker
from support.broker import penstock_command


@pytest.fixture
def connection(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(vhost)) as connection:
        yield connection


def publish(connection: penstock.Connection, queue: str, count: int, **headers: str) -> None:
    for number in range(count):
        connection.publish(b"%d" % number, routing_key=queue, headers=dict(headers) | {"n": number})


def run(broker: Broker, vhost: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [penstock_command(), "queue", *words, "--uri", broker.uri(vhost)]
    return subprocess.run(command, timeout=60, capture_output=True, text=True, check=False)


def bodies(connection: penstock.Connection, queue: str) -> list[bytes]:
    """Take all messages of a queue."""
    return [message.body for message in iter(lambda: connection.get(queue, auto_ack=True), None)]


def test_peeked_messages_stay_as_they_are(connection: penstock.Connection) -> None:
    connection.declare_queue("dead")
    publish(connection, "dead", 5)
    first = connection.get("dead")
    assert first is not None

    assert [message.body for message in connection.peek("dead", 3)] == [b"1", b"2", b"3"]
    first.nack(requeue=True)

    found = connection.peek("dead", 10)
    assert [(message.sequence, message.body) for message in found] == [(n + 1, b"%d" % n) for n in range(5)]
    assert found[2].headers == {"n": 2}
    queue = connection.admin.get_queue("dead")
    assert (queue.ready_count, queue.unacked_count) == (5, 0)
    message = connection.get("dead", auto_ack=True)
    assert message is not None
    assert (message.body, message.redelivered) == (b"0", True)
    message = connection.get("dead", auto_ack=True)
    assert message is not None
    assert (message.body, message.redelivered) == (b"1", False)


def test_a_filter_selects_messages_however_far_behind_they_are(connection: penstock.Connection) -> None:
    connection.declare_queue("long")
    connection.publish_many([b"x"] * 12_000, routing_key="long")
    connection.publish(b"found", routing_key="long", headers={"kind": "rare", "n": 7, "ok": True})

    for header in (("kind", "rare"), ("n", "7"), ("ok", "true")):
        assert [message.body for message in connection.peek("long", 5, header=header)] == [b"found"]
    assert connection.peek("long", 5, header=("kind", "common")) == []
    assert connection.peek("long", 1, routing_key="other") == []
    assert len(connection.peek("long", 2_500)) == 2_500


def test_priorities_are_peeked_in_the_order_of_delivery(connection: penstock.Connection) -> None:
    connection.declare_queue("ranked", arguments={"x-max-priority": 5})
    for priority, body in ((0, b"d"), (5, b"a"), (2, b"c"), (5, b"b")):
        connection.publish(body, routing_key="ranked", properties=penstock.Properties(priority=priority))

    assert [message.body for message in connection.peek("ranked", 10)] == [b"a", b"b", b"c", b"d"]
    assert bodies(connection, "ranked") == [b"a", b"b", b"c", b"d"]


def test_large_messages_are_peeked_one_at_a_time(connection: penstock.Connection) -> None:
    connection.declare_queue("large")
    sent = [b"s", b"x" * (6 << 20), b"t" * (3 << 20), b"u" * (3 << 20)]
    for body in sent:
        connection.publish(body, routing_key="large")

    assert [message.body for message in connection.peek("large", 10)] == sent


def test_streams_and_missing_queues_are_refused(connection: penstock.Connection) -> None:
    connection.declare_stream("events")
    with pytest.raises(penstock.InvalidArgumentError, match="is a stream"):
        connection.peek("events")
    with pytest.raises(penstock.NotFoundError):
        connection.peek("nothing")


def test_the_command_prints_what_it_finds(broker: Broker, vhost: str, connection: penstock.Connection) -> None:
    connection.declare_queue("dead")
    publish(connection, "dead", 3, why="expired")

    assert run(broker, vhost, "peek", "dead", "--count", "2").stdout == "0\n1\n"
    shown = run(broker, vhost, "peek", "dead", "--header", "n=2", "--output", "json").stdout
    described = json.loads(shown)
    assert (described["body"], described["sequence"], described["headers"]) == ("2", 3, {"n": 2, "why": "expired"})
    assert connection.admin.get_queue("dead").ready_count == 3


def test_moved_messages_are_in_the_other_queue_only(
    broker: Broker, vhost: str, connection: penstock.Connection
) -> None:
    connection.declare_queue("dead")
    connection.declare_queue("jobs")
    publish(connection, "dead", 6, why="expired")

    done = run(broker, vhost, "move", "dead", "--to-queue", "jobs", "--header", "n=3")
    assert (done.returncode, done.stdout) == (0, "1 message moved from queue 'dead'\n")
    moved = connection.get("jobs", auto_ack=True)
    assert moved is not None
    assert (moved.body, moved.headers) == (b"3", {"n": 3, "why": "expired"})

    done = run(broker, vhost, "move", "dead", "--to-exchange", "amq.topic", "--new-key", "nobody.listens")
    assert done.returncode != 0
    assert connection.admin.get_queue("dead").ready_count == 5, "what reaches no queue stays"

    assert run(broker, vhost, "move", "dead", "--to-queue", "jobs", "--count", "2").returncode == 0
    assert bodies(connection, "jobs") == [b"0", b"1"]
    assert bodies(connection, "dead") == [b"2", b"4", b"5"]


def test_a_move_to_its_own_queue_is_refused(broker: Broker, vhost: str, connection: penstock.Connection) -> None:
    connection.declare_queue("dead")

    assert "is the source" in run(broker, vhost, "move", "dead", "--to-queue", "dead").stderr
    assert "name either" in run(broker, vhost, "move", "dead").stderr
