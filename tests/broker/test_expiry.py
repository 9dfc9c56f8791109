"""Messages that expire: by their own time, and by the limit of a queue or a policy; also over a restart."""

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

import penstock
from penstock.v1 import message_pb2
from penstock.v1 import messaging_pb2 as wire
from support import Broker
from support.waiting import eventually

GUEST = (("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q="),)
PUBLISH = "/penstock.v1.MessagingService/Publish"
INVALID_ARGUMENT = 3
HOUR = "3600000"


def expiring(milliseconds: str) -> penstock.Properties:
    return penstock.Properties(expiration=milliseconds)


def ready(connection: penstock.Connection, queue: str = "jobs") -> int:
    return connection.admin.get_queue(queue).ready_count


def taken(connection: penstock.Connection, queue: str = "jobs") -> list[penstock.Message]:
    """Return all messages of the queue, which has none afterwards."""
    return list(iter(lambda: connection.get(queue, auto_ack=True), None))


def bodies(connection: penstock.Connection) -> list[bytes]:
    return [message.body for message in taken(connection)]


@pytest.fixture
def connection(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(vhost)) as connection:
        connection.declare_queue("jobs")
        yield connection


def test_a_message_expires_by_itself_and_others_stay(connection: penstock.Connection) -> None:
    connection.publish(b"first", routing_key="jobs")
    connection.publish(b"short", routing_key="jobs", properties=expiring("200"))
    connection.publish(b"long", routing_key="jobs", properties=expiring(HOUR))

    eventually(lambda: ready(connection), 2, 60)

    assert [(each.body, each.properties.expiration) for each in taken(connection)] == [
        (b"first", None),
        (b"long", HOUR),
    ]


def test_a_message_that_comes_back_after_its_time_expires(connection: penstock.Connection) -> None:
    connection.publish(b"short", routing_key="jobs", properties=expiring("2000"))
    message = connection.get("jobs")
    assert message is not None
    eventually(lambda: connection.admin.get_queue("jobs").unacked_count, 1, 60)

    connection.publish(b"waits", routing_key="jobs", properties=expiring("2100"))
    eventually(lambda: ready(connection), 0, 60)
    message.nack()

    eventually(lambda: (ready(connection), connection.admin.get_queue("jobs").unacked_count), (0, 0), 60)
    assert bodies(connection) == []


def test_a_queue_has_an_age_limit_by_its_declaration(connection: penstock.Connection) -> None:
    connection.declare_queue("short", arguments={"x-message-ttl": 200})
    connection.publish_many([b"x"] * 3_000, routing_key="short")

    eventually(lambda: ready(connection, "short"), 0, 60)

    connection.publish(b"y", routing_key="jobs")
    assert ready(connection) == 1


@pytest.mark.parametrize("value", [-1, "1000", True, 2**60])
def test_an_age_limit_is_a_number_of_milliseconds(connection: penstock.Connection, value: int | str) -> None:
    with pytest.raises(penstock.PenstockError, match="write a number of milliseconds, at least 0"):
        connection.declare_queue("odd", arguments={"x-message-ttl": value})


def test_a_policy_counts_at_once_for_the_messages_that_are_there(connection: penstock.Connection) -> None:
    connection.publish_many([b"x"] * 10, routing_key="jobs")

    connection.admin.set_policy("short", "^jobs$", {"message-ttl": 100}, "queues")
    eventually(lambda: ready(connection), 0, 60)
    connection.admin.delete_policy("short")

    connection.publish(b"stays", routing_key="jobs")
    assert bodies(connection) == [b"stays"]


def test_the_lower_limit_of_an_operator_counts(connection: penstock.Connection) -> None:
    connection.declare_queue("long", arguments={"x-message-ttl": 3_600_000})
    connection.publish(b"x", routing_key="long")

    connection.admin.set_policy("short", "^long$", {"message-ttl": 100}, "queues", operator=True)

    eventually(lambda: ready(connection, "long"), 0, 60)
    connection.admin.delete_policy("short", operator=True)


def test_times_count_over_a_restart(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as own, penstock.connect(own.uri()) as connection:
        connection.declare_queue("jobs")
        connection.declare_queue("limited", arguments={"x-message-ttl": 3_000})
        connection.publish(b"short", routing_key="jobs", properties=expiring("3000"))
        connection.publish(b"long", routing_key="jobs", properties=expiring(HOUR))
        connection.publish(b"x", routing_key="limited")
    with Broker(tmp_path / "data") as own, penstock.connect(own.uri()) as connection:
        eventually(lambda: (ready(connection), ready(connection, "limited")), (1, 0), 60)
        assert bodies(connection) == [b"long"]


def test_an_expiration_that_is_no_number_is_rejected_by_itself(
    broker: Broker, vhost: str, connection: penstock.Connection
) -> None:
    odd = message_pb2.Properties(expiration="soon")
    messages = [wire.Message(body=b"one"), wire.Message(body=b"odd", properties=odd), wire.Message(body=b"two")]
    opening = wire.PublishRequest(open=wire.PublishOpen(vhost=vhost, durability=wire.DURABILITY_OS))
    batch = wire.PublishRequest(batch=wire.PublishBatch(routing_key="jobs", messages=messages))
    with grpc.insecure_channel(broker.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        method: Callable[..., Iterator[wire.PublishResponse]] = channel.stream_stream(
            PUBLISH, wire.PublishRequest.SerializeToString, wire.PublishResponse.FromString
        )
        answers = list(method(iter((opening, batch)), metadata=GUEST, timeout=60))

    (rejected,) = [each for answer in answers for each in answer.rejected]
    assert (rejected.first, rejected.last, rejected.code) == (2, 2, INVALID_ARGUMENT)
    assert rejected.reason.startswith("expiration 'soon' is not a number of milliseconds")
    assert ready(connection) == 2


def test_a_delayed_message_comes_at_its_time(connection: penstock.Connection) -> None:
    connection.publish(b"later", routing_key="jobs", properties=penstock.Properties(delay_ms=1_500))
    connection.publish(b"now", routing_key="jobs")

    assert bodies(connection) == [b"now"]
    eventually(lambda: bodies(connection), [b"later"], 60)


def test_a_delay_and_an_expiration_follow_each_other(connection: penstock.Connection) -> None:
    properties = penstock.Properties(delay_ms=500, expiration="200")
    connection.publish(b"x", routing_key="jobs", properties=properties)
    assert ready(connection) == 1

    eventually(lambda: ready(connection), 0, 60)


def test_delays_count_over_a_restart(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as own, penstock.connect(own.uri()) as connection:
        connection.declare_queue("jobs")
        connection.publish(b"later", routing_key="jobs", properties=penstock.Properties(delay_ms=int(HOUR)))
        connection.publish(b"soon", routing_key="jobs", properties=penstock.Properties(delay_ms=100))
    with Broker(tmp_path / "data") as own, penstock.connect(own.uri()) as connection:
        eventually(lambda: bodies(connection), [b"soon"], 60)
        assert bodies(connection) == []
        assert ready(connection) == 1


def test_a_delayed_message_keeps_none_behind_it_after_a_restart(tmp_path: Path) -> None:
    """The limit of the queue did not count for the others, and one Get found nothing for each delayed message."""
    with Broker(tmp_path / "data") as own, penstock.connect(own.uri()) as connection:
        connection.declare_queue("jobs")
        connection.declare_queue("limited", arguments={"x-message-ttl": 3_000})
        for queue in ("jobs", "limited"):
            for _ in range(3):
                connection.publish(b"later", routing_key=queue, properties=penstock.Properties(delay_ms=int(HOUR)))
            connection.publish(b"now", routing_key=queue)
    with Broker(tmp_path / "data") as own, penstock.connect(own.uri()) as connection:
        message = connection.get("jobs")
        assert message is not None
        assert message.body == b"now"
        message.ack()
        assert connection.get("jobs", auto_ack=True) is None
        assert ready(connection) == 3
        eventually(lambda: ready(connection, "limited"), 3, 60)


def test_a_message_that_is_requeued_with_a_delay_comes_back_after_it(
    broker: Broker, vhost: str, connection: penstock.Connection
) -> None:
    connection.publish(b"again", routing_key="jobs")
    with grpc.insecure_channel(broker.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        get: Callable[..., wire.GetResponse] = channel.unary_unary(
            "/penstock.v1.MessagingService/Get", wire.GetRequest.SerializeToString, wire.GetResponse.FromString
        )
        settle: Callable[..., wire.SettleResponse] = channel.unary_unary(
            "/penstock.v1.MessagingService/Settle", wire.SettleRequest.SerializeToString, wire.SettleResponse.FromString
        )
        got = get(wire.GetRequest(vhost=vhost, queue="jobs"), metadata=GUEST, timeout=60)
        (delivery,) = got.deliveries
        request = wire.SettleRequest(vhost=vhost, queue="jobs")
        request.settlement.ranges.add(first=delivery.sequence, last=delivery.sequence)
        request.settlement.delay_ms = 1_500
        request.settlement.outcome = wire.OUTCOME_ACK
        with pytest.raises(grpc.RpcError, match="delay_ms is for messages that are requeued"):
            settle(request, metadata=GUEST, timeout=60)
        request.settlement.outcome = wire.OUTCOME_REQUEUE
        assert settle(request, metadata=GUEST, timeout=60).settled_count == 1

    assert taken(connection) == []
    eventually(
        lambda: [(each.body, each.redelivered, each.delivery_count) for each in taken(connection)],
        [(b"again", True, 1)],
        60,
    )
