"""Queues that are full drop their oldest messages, or refuse new ones; by declaration, policy and operator policy."""

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

import penstock
from penstock.v1 import messaging_pb2 as wire
from support import Broker
from support.waiting import eventually

GUEST = (("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q="),)
PUBLISH = "/penstock.v1.MessagingService/Publish"
RESOURCE_EXHAUSTED = 8


def bodies(connection: penstock.Connection, queue: str) -> list[bytes]:
    """Take all messages of a queue."""
    return [message.body for message in iter(lambda: connection.get(queue, auto_ack=True), None)]


def ready(connection: penstock.Connection, queue: str) -> int:
    return connection.admin.get_queue(queue).ready_count


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


@pytest.fixture
def connection(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(vhost)) as connection:
        yield connection


def test_a_full_queue_has_dropped_its_oldest_messages_before_the_newest_is_confirmed(
    connection: penstock.Connection,
) -> None:
    connection.declare_queue("last", arguments={"x-max-length": 10})

    connection.publish_many(numbers(0, 1_000), routing_key="last")

    found = connection.admin.get_queue("last")
    assert (found.ready_count, found.published_count, found.settled_count) == (10, 1_000, 990)
    assert found.arguments == {"x-max-length": 10}
    assert bodies(connection, "last") == numbers(990, 1_000)


def test_a_limit_of_bytes_counts_bodies_and_a_larger_message_empties_the_queue(connection: penstock.Connection) -> None:
    connection.declare_queue("bytes", arguments={"x-max-length-bytes": 100, "x-overflow": "drop-head"})

    connection.publish_many([b"x" * 30] * 5, routing_key="bytes")
    assert (ready(connection, "bytes"), connection.admin.get_queue("bytes").ready_bytes) == (3, 90)
    connection.publish(b"x" * 101, routing_key="bytes")

    assert (ready(connection, "bytes"), connection.admin.get_queue("bytes").ready_bytes) == (0, 0)


def test_unacked_messages_do_not_count_and_are_the_oldest_when_they_come_back(connection: penstock.Connection) -> None:
    connection.declare_queue("held", arguments={"x-max-length": 2})
    connection.publish_many(numbers(0, 2), routing_key="held")
    held = [connection.get("held"), connection.get("held")]

    connection.publish_many(numbers(2, 4), routing_key="held")
    eventually(lambda: (ready(connection, "held"), connection.admin.get_queue("held").unacked_count), (2, 2), 60)
    for message in held:
        assert message is not None
        message.nack()

    eventually(lambda: (ready(connection, "held"), connection.admin.get_queue("held").unacked_count), (2, 0), 60)
    assert bodies(connection, "held") == numbers(2, 4)


def test_a_queue_that_rejects_keeps_what_it_has_and_its_publisher_is_told_of_each_message(
    broker: Broker, vhost: str, connection: penstock.Connection
) -> None:
    connection.declare_queue("full", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    connection.declare_queue("other")
    connection.declare_exchange("both", "fanout")
    for queue in ("full", "other"):
        connection.bind_queue(queue, "both")
    opening = wire.PublishRequest(open=wire.PublishOpen(vhost=vhost, durability=wire.DURABILITY_DISK))
    messages = [wire.Message(body=body) for body in numbers(0, 4)]
    batch = wire.PublishRequest(batch=wire.PublishBatch(exchange="both", messages=messages))
    with grpc.insecure_channel(broker.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        method: Callable[..., Iterator[wire.PublishResponse]] = channel.stream_stream(
            PUBLISH, wire.PublishRequest.SerializeToString, wire.PublishResponse.FromString
        )
        answers = list(method(iter((opening, batch)), metadata=GUEST, timeout=60))

    rejected = [each for answer in answers for each in answer.rejected]
    refused = [number for each in rejected for number in range(each.first, each.last + 1)]
    assert (refused, {each.code for each in rejected}) == ([3, 4], {RESOURCE_EXHAUSTED})
    assert "has as many messages as it may have" in rejected[0].reason
    assert bodies(connection, "full") == numbers(0, 2)
    assert bodies(connection, "other") == numbers(0, 4), "as in RabbitMQ"
    connection.publish(b"room", routing_key="full")
    connection.publish(b"again", routing_key="full")
    with pytest.raises(penstock.PenstockError, match="has as many messages as it may have"):
        connection.publish(b"too many", routing_key="full")


def test_policies_count_at_once_for_messages_that_are_there_and_the_smallest_number_holds(
    connection: penstock.Connection,
) -> None:
    connection.declare_queue("jobs", arguments={"x-max-length": 500})
    connection.publish_many(numbers(0, 500), routing_key="jobs")

    connection.admin.set_policy("short", "^jobs$", {"max-length": 100}, "queues")
    eventually(lambda: ready(connection, "jobs"), 100, 60)
    connection.admin.set_policy("shorter", "^jobs$", {"max-length": 50}, "queues", operator=True)
    eventually(lambda: ready(connection, "jobs"), 50, 60)
    connection.admin.set_policy("short", "^jobs$", {"max-length": 20, "overflow": "reject-publish"}, "queues")

    with pytest.raises(penstock.PenstockError, match="has as many messages as it may have"):
        connection.publish(b"refused", routing_key="jobs")
    assert ready(connection, "jobs") == 50, "it keeps what it has"
    connection.admin.delete_policy("short")
    connection.admin.delete_policy("shorter", operator=True)
    connection.publish_many(numbers(500, 1_000), routing_key="jobs")
    assert bodies(connection, "jobs") == numbers(500, 1_000), "the declared limit holds again"


@pytest.mark.parametrize(
    ("definition", "rule"),
    [
        ({"max-length": -1}, "write a number of messages, at least 0"),
        ({"max-length-bytes": 0}, "write a number of bytes, at least 1"),
        ({"overflow": "drop-tail"}, "use drop-head or reject-publish or reject-publish-dlx"),
        ({"expires": 0}, "write a number of milliseconds, at least 1"),
    ],
)
def test_a_policy_with_a_wrong_limit_is_refused(
    connection: penstock.Connection, definition: dict[str, int | str], rule: str
) -> None:
    with pytest.raises(penstock.PenstockError, match=rule):
        connection.admin.set_policy("odd", ".*", definition)


def test_an_operator_does_not_set_what_a_full_queue_does(connection: penstock.Connection) -> None:
    with pytest.raises(penstock.PenstockError, match="'overflow', which is not an operator's"):
        connection.admin.set_policy("odd", ".*", {"overflow": "reject-publish"}, operator=True)


def test_limits_hold_over_kills_and_nothing_more_is_dropped(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as own:
        with penstock.connect(own.uri()) as connection:
            connection.declare_queue("last", arguments={"x-max-length": 10})
            connection.declare_queue("full", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
            connection.declare_queue("ranked", arguments={"x-max-length": 3, "x-max-priority": 5})
            connection.publish_many(numbers(0, 100), routing_key="last")
            connection.publish_many(numbers(0, 2), routing_key="full")
            for priority in (0, 5, 1, 3):
                properties = penstock.Properties(priority=priority)
                connection.publish(b"%d" % priority, routing_key="ranked", properties=properties)
            delayed = penstock.Properties(delay_ms=3_600_000)
            connection.publish(b"delayed", routing_key="last", properties=delayed)
        own.kill()
        own.start()
        with penstock.connect(own.uri()) as connection:
            assert ready(connection, "last") == 10
            with pytest.raises(penstock.PenstockError, match="has as many messages as it may have"):
                connection.publish(b"too many", routing_key="full")
            assert bodies(connection, "ranked") == [b"3", b"1", b"0"]
            assert bodies(connection, "last") == numbers(91, 100)
            assert ready(connection, "last") == 1


def test_dropped_and_refused_messages_are_counted(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as own, penstock.connect(own.uri()) as connection:
        connection.declare_queue("last", arguments={"x-max-length": 1})
        connection.declare_queue("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
        connection.publish_many(numbers(0, 5), routing_key="last")
        with pytest.raises(penstock.PenstockError):
            connection.publish(b"x", routing_key="full")

        lines = own.scrape().splitlines()
    assert "penstock_messages_dropped_total 4.0" in lines
    assert "penstock_messages_refused_total 1.0" in lines
