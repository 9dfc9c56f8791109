"""Open streams whose user loses permissions: they end, and their messages return."""

import base64
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

import penstock
from penstock.v1 import message_pb2, messaging_pb2, messaging_pb2_grpc, streams_pb2, streams_pb2_grpc
from support import Broker, eventually

SECONDS_MAX = 60
Take = Callable[[penstock.Connection, str], None]


@pytest.fixture
def root(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    """With a user `clara` who may read, a queue of two messages and a stream."""
    with penstock.connect(broker.uri(vhost)) as connection:
        connection.admin.put_user("clara", "secret")
        connection.admin.set_permission("clara", vhost, "", ".*", ".*")
        connection.declare_queue("jobs")
        connection.declare_stream("events")
        for body in (b"first", b"second"):
            connection.publish(body, routing_key="jobs")
        yield connection
        if any(user.name == "clara" for user in connection.admin.list_users()):
            connection.admin.delete_user("clara")


def counts(connection: penstock.Connection) -> tuple[int, int]:
    (queue,) = (queue for queue in connection.admin.list_queues() if queue.name == "jobs")
    return queue.ready_count, queue.unacked_count


def basic(user: str, password: str) -> list[tuple[str, str]]:
    return [("authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())]


def take_permission(root: penstock.Connection, vhost: str) -> None:
    root.admin.delete_permission("clara", vhost)


def take_reading(root: penstock.Connection, vhost: str) -> None:
    root.admin.set_permission("clara", vhost, "", ".*", "nothing")


def change_password(root: penstock.Connection, vhost: str) -> None:
    root.admin.put_user("clara", "another secret")


def delete_user(root: penstock.Connection, vhost: str) -> None:
    root.admin.delete_user("clara")


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    ("take", "error"),
    [
        (take_permission, penstock.AccessRefusedError),
        (take_reading, penstock.AccessRefusedError),
        (change_password, penstock.NotAuthenticatedError),
        (delete_user, penstock.NotAuthenticatedError),
    ],
)
def test_a_consumer_ends_with_its_right_and_what_it_held_returns(
    broker: Broker, vhost: str, root: penstock.Connection, take: Take, error: type[Exception], native: bool
) -> None:
    with penstock.connect(broker.uri(vhost, "clara", "secret"), native=native) as clara:
        messages = iter(clara.consume("jobs", idle_timeout=SECONDS_MAX))
        held = [next(messages), next(messages)]
        assert [message.body for message in held] == [b"first", b"second"]

        take(root, vhost)
        with pytest.raises(error):
            next(messages)

        eventually(lambda: counts(root), (2, 0), SECONDS_MAX)


@pytest.mark.parametrize(
    ("take", "error"),
    [(take_reading, penstock.AccessRefusedError), (delete_user, penstock.NotAuthenticatedError)],
)
def test_a_reader_ends_with_its_right(
    broker: Broker, vhost: str, root: penstock.Connection, take: Take, error: type[Exception]
) -> None:
    with penstock.connect(broker.uri(vhost, "clara", "secret")) as clara:
        messages = iter(clara.stream("events").read("first", idle_timeout=SECONDS_MAX))
        root.stream("events").publish(b"x")
        assert next(messages).body == b"x"

        take(root, vhost)

        with pytest.raises(error):
            next(messages)


def test_a_change_that_leaves_the_right_ends_nothing(broker: Broker, vhost: str, root: penstock.Connection) -> None:
    with penstock.connect(broker.uri(vhost, "clara", "secret")) as clara:
        messages = iter(clara.consume("jobs", idle_timeout=SECONDS_MAX))
        next(messages)
        next(messages)

        root.admin.set_permission("clara", vhost, "", "", "jobs")
        root.admin.put_user("somebody", "else")
        root.admin.delete_user("somebody")
        root.publish(b"third", routing_key="jobs")

        assert next(messages).body == b"third"


def test_what_a_client_holds_that_reads_no_more_goes_to_others(
    broker: Broker, vhost: str, root: penstock.Connection
) -> None:
    """It never reads the end of its stream, so only the broker can take the messages back."""
    for _ in range(40):
        root.publish(b"x" * 1_000_000, routing_key="jobs")
    credentials = base64.b64encode(b"clara:secret").decode()
    done = threading.Event()

    def requests() -> Iterator[messaging_pb2.ConsumeRequest]:
        yield messaging_pb2.ConsumeRequest(open=messaging_pb2.ConsumeOpen(vhost=vhost, queue="jobs"))
        done.wait(SECONDS_MAX)

    with grpc.insecure_channel(broker.address) as channel:
        stub = messaging_pb2_grpc.MessagingServiceStub(channel)
        stream: Any = stub.Consume(requests(), metadata=[("authorization", f"Basic {credentials}")])
        next(stream)
        eventually(lambda: counts(root)[1] > 0, True, SECONDS_MAX)

        take_permission(root, vhost)

        eventually(lambda: counts(root), (42, 0), SECONDS_MAX)
        done.set()
        stream.cancel()


@pytest.mark.parametrize("take", [take_permission, take_reading, change_password, delete_user])
def test_what_get_took_returns_when_its_user_may_not_read_any_more(
    broker: Broker, vhost: str, root: penstock.Connection, take: Take
) -> None:
    """The connection stays open, so only the broker can return the messages."""
    request = messaging_pb2.GetRequest(vhost=vhost, queue="jobs", count_max=10)
    with grpc.insecure_channel(broker.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = messaging_pb2_grpc.MessagingServiceStub(channel)
        assert len(stub.Get(request, metadata=basic("clara", "secret"), timeout=30).deliveries) == 2
        root.admin.set_permission("guest", vhost, ".*", ".*", ".*")
        assert counts(root) == (0, 2)

        take(root, vhost)

        eventually(lambda: counts(root), (2, 0), SECONDS_MAX)
        with pytest.raises(grpc.RpcError):
            stub.Get(request, metadata=basic("clara", "secret"), timeout=30)


def test_users_of_one_connection_do_not_share_what_get_took(
    broker: Broker, vhost: str, root: penstock.Connection
) -> None:
    root.admin.put_user("dora", "secret")
    root.admin.set_permission("dora", vhost, "", "", ".*")
    request = messaging_pb2.GetRequest(vhost=vhost, queue="jobs", count_max=1)
    everything = message_pb2.Range(first=0, last=2**64 - 1)
    settlement = messaging_pb2.Settlement(outcome=messaging_pb2.OUTCOME_ACK, ranges=[everything])
    settle = messaging_pb2.SettleRequest(vhost=vhost, queue="jobs", settlement=settlement)
    with grpc.insecure_channel(broker.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = messaging_pb2_grpc.MessagingServiceStub(channel)
        assert len(stub.Get(request, metadata=basic("clara", "secret"), timeout=30).deliveries) == 1
        assert stub.Settle(settle, metadata=basic("dora", "secret"), timeout=30).settled_count == 0
        assert len(stub.Get(request, metadata=basic("dora", "secret"), timeout=30).deliveries) == 1

        delete_user(root, vhost)

        eventually(lambda: counts(root), (1, 1), SECONDS_MAX)
        assert stub.Settle(settle, metadata=basic("dora", "secret"), timeout=30).settled_count == 1
        assert counts(root) == (1, 0)
    root.admin.delete_user("dora")


def test_a_revoked_reader_that_reads_no_more_gives_up_its_turn(
    broker: Broker, vhost: str, root: penstock.Connection
) -> None:
    """It never asks for the end of its stream, so only the broker can let the next one of its group go on."""
    events = root.stream("events")
    for _ in range(40):
        events.publish(b"x" * 1_000_000)
    credentials = base64.b64encode(b"clara:secret").decode()
    done = threading.Event()

    def requests() -> Iterator[streams_pb2.ReadRequest]:
        start = streams_pb2.Start(place=streams_pb2.PLACE_FIRST)
        opening = streams_pb2.ReadOpen(vhost=vhost, partition="events", start=start, group="g", single_active=True)
        yield streams_pb2.ReadRequest(open=opening)
        done.wait(SECONDS_MAX)

    with grpc.insecure_channel(broker.address) as channel:
        stub = streams_pb2_grpc.StreamServiceStub(channel)
        revoked: Any = stub.Read(requests(), metadata=[("authorization", f"Basic {credentials}")])
        next(response for response in revoked if response.WhichOneof("response") == "deliveries")
        second = events.read("first", group="g", single_active=True, idle_timeout=SECONDS_MAX)
        eventually(lambda: events.info().reader_count, 2, SECONDS_MAX)
        assert second.active_partitions == []

        take_reading(root, vhost)

        assert next(iter(second)).body == b"x" * 1_000_000
        assert second.active_partitions == ["events"]
        second.close()
        done.set()
        revoked.cancel()
