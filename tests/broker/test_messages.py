"""Messages end to end: published, routed, delivered and settled through the Python client."""

from collections.abc import Callable
from itertools import islice

import pytest

import penstock
from penstock.client.values import Value
from support import eventually

Connect = Callable[[], penstock.Connection]
MESSAGE_BYTES_MAX = 16 * 1024 * 1024


@pytest.fixture
def queue(connection: penstock.Connection) -> str:
    return connection.declare_queue("jobs").name


def counts(connection: penstock.Connection, queue: str) -> tuple[int, int]:
    found = connection.admin.get_queue(queue)
    return found.ready_count, found.unacked_count


def got(connection: penstock.Connection, queue: str) -> penstock.Message:
    message = connection.get(queue)
    assert message is not None, f"queue {queue} has no ready message"
    return message


def test_a_message_arrives_with_all_that_was_published(connection: penstock.Connection, queue: str) -> None:
    properties = penstock.Properties(
        content_type="text/plain", correlation_id="c-1", reply_to="r", timestamp=1_772_400_000, message_id="m-1"
    )
    headers: dict[str, Value] = {
        "text": "héllo",
        "number": -7,
        "float": 2.5,
        "flag": True,
        "bytes": b"\x00\xff",
        "none": None,
        "list": [1, "a"],
    }

    connection.publish(b"body", routing_key=queue, properties=properties, headers=headers)

    message = got(connection, queue)
    assert (message.body, message.exchange, message.routing_key) == (b"body", "", queue)
    assert (message.redelivered, message.delivery_count) == (False, 0)
    assert message.properties.content_type == "text/plain"
    assert message.properties.correlation_id == "c-1"
    assert (message.properties.reply_to, message.properties.timestamp) == ("r", 1_772_400_000)
    assert dict(message.headers) == headers


def test_a_consumed_message_is_a_message_and_has_what_was_published(
    connection: penstock.Connection, queue: str
) -> None:
    connection.publish(b"body", routing_key=queue, properties=penstock.Properties(app_id="a"), headers={"number": 7})
    connection.publish(b"bare", routing_key=queue)

    message, bare = islice(connection.consume(queue), 2)

    assert isinstance(message, penstock.Message)
    assert (message.body, message.exchange, message.routing_key) == (b"body", "", queue)
    assert (message.sequence, message.redelivered, message.delivery_count) == (1, False, 0)
    assert message.stored_at_ms > 1_700_000_000_000
    assert message.properties.app_id == "a"
    assert message.properties is message.properties
    assert (dict(message.headers), dict(bare.headers)) == ({"number": 7}, {})
    assert bare.properties == penstock.Properties()
    assert repr(message) == "<Message 1 of 4 bytes, routing key 'jobs'>"


def test_every_name_of_a_message_is_there_whatever_brought_it(connection: penstock.Connection, queue: str) -> None:
    connection.publish_many([b"a", b"b"], routing_key=queue)
    taken = got(connection, queue)

    consumed = next(iter(connection.consume(queue)))

    names = [name for name in dir(penstock.Message) if not name.startswith("_")]
    assert len(names) == 12
    for message in (taken, consumed):
        assert [name for name in names if not hasattr(message, name)] == []


def test_each_consumed_message_is_settled_once_and_in_its_own_way(connection: penstock.Connection, queue: str) -> None:
    connection.publish_many([b"acked", b"rejected", b"dropped", b"back"], routing_key=queue)

    with connection.consume(queue, prefetch=4) as messages:
        acked, rejected, dropped, back = islice(messages, 4)
        penstock.Message.ack(acked)
        acked.nack()
        rejected.reject()
        dropped.nack(requeue=False)
        back.nack()
        back.ack()
        again = next(iter(messages))

        assert (again.body, again.redelivered, again.delivery_count) == (b"back", True, 1)
        again.ack()
        eventually(lambda: counts(connection, queue), (0, 0))


def test_messages_are_consumed_in_the_order_they_were_published(connection: penstock.Connection, queue: str) -> None:
    bodies = [str(number).encode() for number in range(20_000)]

    connection.publish_many(bodies, routing_key=queue)

    arrived = []
    for message in connection.consume(queue, prefetch=500):
        arrived.append(message.body)
        message.ack()
        if len(arrived) == len(bodies):
            break
    assert arrived == bodies
    eventually(lambda: counts(connection, queue), (0, 0))


def test_a_requeued_message_returns_to_its_place(connection: penstock.Connection, queue: str) -> None:
    connection.publish_many([b"a", b"b", b"c"], routing_key=queue)
    first, second = got(connection, queue), got(connection, queue)

    second.nack(requeue=True)
    first.nack(requeue=True)

    order = [got(connection, queue) for _ in range(3)]
    assert [message.body for message in order] == [b"a", b"b", b"c"]
    assert [message.redelivered for message in order] == [True, True, False]
    assert [message.delivery_count for message in order] == [1, 1, 0]


@pytest.mark.parametrize("settle", [penstock.Message.ack, penstock.Message.reject])
def test_an_acknowledged_or_rejected_message_is_gone(
    connection: penstock.Connection, queue: str, settle: Callable[[penstock.Message], None]
) -> None:
    connection.publish_many([b"a", b"b"], routing_key=queue)

    settle(got(connection, queue))

    assert counts(connection, queue) == (1, 0)
    assert got(connection, queue).body == b"b"


def test_prefetch_bounds_what_a_consumer_holds(connection: penstock.Connection, queue: str) -> None:
    connection.publish_many([b"x"] * 100, routing_key=queue)

    with connection.consume(queue, prefetch=10) as consumption:
        held = list(islice(consumption, 10))

        assert len(held) == 10
        assert counts(connection, queue) == (90, 10)


def test_what_a_consumer_held_goes_to_the_next_one(connect: Connect) -> None:
    first, second = connect(), connect()
    first.declare_queue("jobs")
    first.publish_many([b"a", b"b", b"c"], routing_key="jobs")

    held = list(islice(first.consume("jobs", prefetch=2), 2))
    first.close()

    assert [message.body for message in held] == [b"a", b"b"]
    taken = list(islice(second.consume("jobs"), 3))
    assert [message.body for message in taken] == [b"a", b"b", b"c"]
    assert [message.redelivered for message in taken] == [True, True, False]


def test_two_consumers_share_a_queue(connect: Connect) -> None:
    publisher, first, second = connect(), connect(), connect()
    publisher.declare_queue("jobs")
    with first.consume("jobs", prefetch=10) as one, second.consume("jobs", prefetch=10) as two:
        eventually(lambda: publisher.admin.get_queue("jobs").consumer_count, 2)

        publisher.publish_many([str(number).encode() for number in range(20)], routing_key="jobs")

        bodies = [message.body for consumption in (one, two) for message in islice(consumption, 10)]
    assert sorted(bodies, key=int) == [str(number).encode() for number in range(20)]


def test_an_automatically_acknowledged_message_is_gone(connection: penstock.Connection, queue: str) -> None:
    connection.publish_many([b"a", b"b"], routing_key=queue)

    taken = list(islice(connection.consume(queue, auto_ack=True), 2))

    assert [message.body for message in taken] == [b"a", b"b"]
    eventually(lambda: counts(connection, queue), (0, 0))


def test_a_mandatory_message_that_reaches_no_queue_is_returned(connection: penstock.Connection) -> None:
    with pytest.raises(penstock.ReturnedError):
        connection.publish(b"lost", routing_key="nowhere", mandatory=True)


def test_a_message_that_reaches_no_queue_is_confirmed_otherwise(connection: penstock.Connection, queue: str) -> None:
    connection.publish(b"lost", routing_key="nowhere")

    assert counts(connection, queue) == (0, 0)


def test_publishing_goes_on_after_an_unknown_exchange(connection: penstock.Connection, queue: str) -> None:
    with pytest.raises(penstock.NotFoundError, match="no-such-exchange"):
        connection.publish(b"a", exchange="no-such-exchange", routing_key=queue)

    connection.publish(b"b", routing_key=queue)

    assert got(connection, queue).body == b"b"


def test_a_message_larger_than_the_limit_is_refused_and_the_next_one_is_not(
    connection: penstock.Connection, queue: str
) -> None:
    with pytest.raises(penstock.TooLargeError):
        connection.publish(bytes(MESSAGE_BYTES_MAX + 1), routing_key=queue)

    connection.publish(b"small", routing_key=queue)

    assert counts(connection, queue) == (1, 0)


def test_a_message_larger_than_a_segment_comes_back_whole(connection: penstock.Connection, queue: str) -> None:
    body = bytes(range(256)) * (10 * 1024 * 1024 // 256)

    connection.publish(body, routing_key=queue)

    assert got(connection, queue).body == body


def test_an_empty_queue_gives_nothing(connection: penstock.Connection, queue: str) -> None:
    assert connection.get(queue) is None


def test_purging_drops_what_is_ready_and_keeps_what_is_unsettled(connection: penstock.Connection, queue: str) -> None:
    connection.publish_many([b"a", b"b", b"c"], routing_key=queue)
    held = got(connection, queue)

    dropped = connection.purge_queue(queue)

    assert dropped == 2
    assert counts(connection, queue) == (0, 1)
    held.ack()
    assert counts(connection, queue) == (0, 0)


def test_a_message_for_two_queues_is_settled_in_each(connection: penstock.Connection) -> None:
    for name in ("one", "two"):
        connection.declare_queue(name)
        connection.bind_queue(name, "amq.fanout")

    connection.publish(b"both", exchange="amq.fanout")
    got(connection, "one").ack()

    assert counts(connection, "one") == (0, 0)
    assert got(connection, "two").body == b"both"
