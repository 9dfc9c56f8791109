"""Get, with clients that take little.

A response is bounded in bytes, and messages of one that did not arrive come back. A consumer beside it takes nothing
more: published messages go to the others.
"""

from collections.abc import Iterator

import grpc
import pytest

import penstock
from hostile.wire import RST_STREAM, Wire, frame, message
from penstock.v1 import message_pb2, messaging_pb2, messaging_pb2_grpc
from support import Broker, eventually

BASIC = "Basic Z3Vlc3Q6Z3Vlc3Q="
GUEST = (("authorization", BASIC),)
SERVICE = "/penstock.v1.MessagingService/"
SMALL_WINDOW = 64
CANCEL = (8).to_bytes(4)


@pytest.fixture
def root(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(vhost)) as connection:
        yield connection


@pytest.fixture
def narrow(broker: Broker) -> Iterator[Wire]:
    """Return a client that has no space for a response."""
    with Wire(int(broker.address.rpartition(":")[2]), BASIC, window=SMALL_WINDOW) as wire:
        yield wire


def counts(root: penstock.Connection, queue: str) -> tuple[int, int]:
    found = root.admin.get_queue(queue)
    return found.ready_count, found.unacked_count


@pytest.mark.parametrize("auto_ack", [True, False])
def test_get_gives_what_a_client_of_default_settings_takes(
    broker: Broker, root: penstock.Connection, vhost: str, auto_ack: bool
) -> None:
    root.declare_queue("jobs")
    root.publish_many([bytes(200_000)] * 50, routing_key="jobs")
    request = messaging_pb2.GetRequest(vhost=vhost, queue="jobs", count_max=1000, auto_ack=auto_ack)

    with grpc.insecure_channel(broker.address) as channel:
        stub = messaging_pb2_grpc.MessagingServiceStub(channel)
        answers = [stub.Get(request, metadata=GUEST, timeout=30) for _ in range(3)]

        assert [len(answer.deliveries) for answer in answers] == [20, 20, 10]
        assert [answer.ready_count for answer in answers] == [30, 10, 0]
        deliveries = [delivery for answer in answers for delivery in answer.deliveries]
        assert len({delivery.sequence for delivery in deliveries}) == 50
        assert not any(delivery.redelivered for delivery in deliveries)
        assert counts(root, "jobs") == (0, 0 if auto_ack else 50)


def test_a_message_larger_than_a_response_goes_alone(broker: Broker, root: penstock.Connection, vhost: str) -> None:
    root.declare_queue("jobs")
    root.publish_many([b"small", bytes(5_000_000), b"last"], routing_key="jobs")
    request = messaging_pb2.GetRequest(vhost=vhost, queue="jobs", count_max=10, auto_ack=True)

    with grpc.insecure_channel(broker.address, options=[("grpc.max_receive_message_length", -1)]) as channel:
        stub = messaging_pb2_grpc.MessagingServiceStub(channel)
        answers = [stub.Get(request, metadata=GUEST, timeout=30) for _ in range(3)]

    assert [[len(one.body) for one in answer.deliveries] for answer in answers] == [[5], [5_000_000], [4]]
    assert counts(root, "jobs") == (0, 0)


@pytest.mark.parametrize("auto_ack", [True, False])
def test_what_a_response_held_that_did_not_arrive_comes_back(
    root: penstock.Connection, narrow: Wire, vhost: str, auto_ack: bool
) -> None:
    root.declare_queue("jobs")
    root.publish_many([bytes(100)] * 3, routing_key="jobs")
    request = messaging_pb2.GetRequest(vhost=vhost, queue="jobs", count_max=10, auto_ack=auto_ack)

    stream = narrow.request(SERVICE + "Get", message(request.SerializeToString()))
    eventually(lambda: counts(root, "jobs"), (0, 3))
    narrow.send(frame(RST_STREAM, 0, stream, CANCEL))

    eventually(lambda: counts(root, "jobs"), (3, 0))
    found = [root.get("jobs") for _ in range(3)]
    assert [one is not None and (one.redelivered, one.delivery_count) for one in found] == [(True, 1)] * 3


def test_what_one_get_put_back_and_another_holds_stays_with_that_one(
    root: penstock.Connection, narrow: Wire, vhost: str
) -> None:
    """Two Gets of one connection: the first has room for one of the messages that it took."""
    root.declare_queue("jobs")
    root.publish_many([bytes(3_000_000)] * 3, routing_key="jobs")
    request = messaging_pb2.GetRequest(vhost=vhost, queue="jobs", count_max=10)

    first = narrow.request(SERVICE + "Get", message(request.SerializeToString()))
    eventually(lambda: counts(root, "jobs"), (2, 1))
    narrow.request(SERVICE + "Get", message(request.SerializeToString()))
    eventually(lambda: counts(root, "jobs"), (1, 2))
    narrow.send(frame(RST_STREAM, 0, first, CANCEL))

    eventually(lambda: counts(root, "jobs"), (2, 1))
    found = [root.get("jobs") for _ in range(2)]
    assert [one is not None and one.redelivered for one in found] == [True, False]


def test_the_responses_of_one_connection_are_bounded_together(
    root: penstock.Connection, narrow: Wire, vhost: str
) -> None:
    root.declare_queue("jobs")
    root.publish_many([bytes(100)] * 40, routing_key="jobs")
    request = messaging_pb2.GetRequest(vhost=vhost, queue="jobs", auto_ack=True)

    streams = [narrow.request(SERVICE + "Get", message(request.SerializeToString())) for _ in range(20)]
    eventually(lambda: counts(root, "jobs"), (36, 4))
    for stream in streams[:10]:
        narrow.send(frame(RST_STREAM, 0, stream, CANCEL))

    eventually(lambda: counts(root, "jobs"), (36, 4))
    for stream in streams[10:]:
        narrow.send(frame(RST_STREAM, 0, stream, CANCEL))
    eventually(lambda: counts(root, "jobs"), (40, 0))


def test_a_connection_holds_no_more_of_a_queue_than_a_consumer_may(
    broker: Broker, root: penstock.Connection, vhost: str
) -> None:
    root.declare_queue("jobs")
    root.publish_many([b"x"] * 65_600, routing_key="jobs")
    request = messaging_pb2.GetRequest(vhost=vhost, queue="jobs", count_max=1000)
    everything = message_pb2.Range(first=0, last=2**64 - 1)
    settlement = messaging_pb2.Settlement(outcome=messaging_pb2.OUTCOME_ACK, ranges=[everything])

    with grpc.insecure_channel(broker.address) as channel:
        stub = messaging_pb2_grpc.MessagingServiceStub(channel)
        taken = [len(stub.Get(request, metadata=GUEST, timeout=30).deliveries) for _ in range(66)]
        assert sum(taken) == 65_535
        with pytest.raises(grpc.RpcError) as refused:
            stub.Get(request, metadata=GUEST, timeout=30)
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        settled = messaging_pb2.SettleRequest(vhost=vhost, queue="jobs", settlement=settlement)
        assert stub.Settle(settled, metadata=GUEST, timeout=30).settled_count == 65_535
        assert len(stub.Get(request, metadata=GUEST, timeout=30).deliveries) == 65


def test_a_consumer_whose_client_has_no_room_leaves_messages_to_others(
    root: penstock.Connection, narrow: Wire, broker: Broker, vhost: str
) -> None:
    root.declare_queue("letters")
    opening = messaging_pb2.ConsumeRequest(open=messaging_pb2.ConsumeOpen(vhost=vhost, queue="letters", prefetch=1000))
    narrow.request(SERVICE + "Consume", message(opening.SerializeToString()), flags=0)
    eventually(lambda: root.admin.get_queue("letters").consumer_count, 1)
    root.publish(bytes(500), routing_key="letters")
    eventually(lambda: counts(root, "letters"), (0, 1))

    with penstock.connect(broker.uri(vhost)) as other, other.consume("letters", idle_timeout=30) as messages:
        eventually(lambda: root.admin.get_queue("letters").consumer_count, 2)
        for number in range(5):
            root.publish(b"%d" % number, routing_key="letters")
            found = next(iter(messages))
            assert found.body == b"%d" % number
            found.ack()
