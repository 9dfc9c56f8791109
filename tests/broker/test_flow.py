"""Flow control and the end of streams, with a plain grpcio client.

They cover the broker's buffers for a client that does not read, the messages of a cancelled stream, and messages that
arrive during a stop.
"""

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import grpc
import pytest

import penstock
from penstock.v1 import messaging_pb2, messaging_pb2_grpc
from support import Broker, eventually

GUEST = (("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q="),)
BACKLOG_COUNT, BODY = 20_000, b"x" * 4096
GROWTH_KIB_MAX = 32 * 1024


@pytest.fixture
def channel(broker: Broker) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(broker.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel


@pytest.fixture
def root(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(vhost)) as connection:
        yield connection


class Requests:
    """The sending side of a stream: items put into it are sent, until it is closed."""

    def __init__(self, *first: messaging_pb2.ConsumeRequest) -> None:
        self._waiting: SimpleQueue[messaging_pb2.ConsumeRequest | None] = SimpleQueue()
        for request in first:
            self._waiting.put(request)

    def put(self, request: messaging_pb2.ConsumeRequest) -> None:
        self._waiting.put(request)

    def close(self) -> None:
        self._waiting.put(None)

    def __iter__(self) -> Iterator[messaging_pb2.ConsumeRequest]:
        return iter(self._waiting.get, None)


def opening(vhost: str, queue: str, prefetch: int, auto_ack: bool = False) -> messaging_pb2.ConsumeRequest:
    return messaging_pb2.ConsumeRequest(
        open=messaging_pb2.ConsumeOpen(vhost=vhost, queue=queue, prefetch=prefetch, auto_ack=auto_ack)
    )


def anonymous_kib(pid: int) -> int:
    found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


@pytest.mark.slow
@pytest.mark.parametrize("auto_ack", [True, False])
def test_a_consumer_that_does_not_read_costs_the_broker_next_to_nothing(
    broker: Broker, channel: grpc.Channel, root: penstock.Connection, vhost: str, auto_ack: bool
) -> None:
    root.declare_queue("backlog")
    requests = Requests(opening(vhost, "backlog", 65_535, auto_ack))
    stream = messaging_pb2_grpc.MessagingServiceStub(channel).Consume(iter(requests), metadata=GUEST)
    assert next(stream).HasField("opened")
    before = anonymous_kib(broker.pid)

    for _ in range(10):
        root.publish_many([BODY] * (BACKLOG_COUNT // 10), routing_key="backlog")

    assert anonymous_kib(broker.pid) - before < GROWTH_KIB_MAX
    stream.cancel()


def test_what_a_cancelled_stream_held_is_ready_again(
    channel: grpc.Channel, root: penstock.Connection, vhost: str
) -> None:
    root.declare_queue("jobs")
    root.publish_many([b"one", b"two"], routing_key="jobs")
    requests = Requests(opening(vhost, "jobs", 10))
    stream = messaging_pb2_grpc.MessagingServiceStub(channel).Consume(iter(requests), metadata=GUEST)
    assert next(stream).HasField("opened")
    assert len(next(stream).deliveries.deliveries) == 2

    stream.cancel()

    eventually(lambda: root.admin.get_queue("jobs").ready_count, 2)
    message = root.get("jobs")
    assert message is not None
    assert (message.body, message.redelivered) == (b"one", True)


def test_a_call_past_its_deadline_ends_and_the_next_one_is_answered(
    channel: grpc.Channel, root: penstock.Connection, vhost: str
) -> None:
    root.declare_queue("jobs")
    stub = messaging_pb2_grpc.MessagingServiceStub(channel)

    stream = stub.Consume(iter(Requests(opening(vhost, "jobs", 10))), metadata=GUEST, timeout=0.2)
    with pytest.raises(grpc.RpcError) as ended:
        list(stream)

    assert ended.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    eventually(lambda: root.admin.get_queue("jobs").consumer_count, 0)
    answer = stub.Get(messaging_pb2.GetRequest(vhost=vhost, queue="jobs"), metadata=GUEST, timeout=10)
    assert answer.ready_count == 0


def test_a_stream_that_does_not_open_first_is_refused(channel: grpc.Channel) -> None:
    stub = messaging_pb2_grpc.MessagingServiceStub(channel)

    with pytest.raises(grpc.RpcError) as refused:
        list(stub.Publish(iter([messaging_pb2.PublishRequest(batch=messaging_pb2.PublishBatch())]), metadata=GUEST))

    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert "open" in str(refused.value.details())


def test_a_stop_takes_in_what_consumers_still_settle(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as own:
        with penstock.connect(own.uri()) as connection:
            connection.declare_queue("jobs")
            connection.publish_many([b"done", b"open"], routing_key="jobs")
        with grpc.insecure_channel(own.address) as channel:
            requests = Requests(opening("/", "jobs", 10))
            stream = messaging_pb2_grpc.MessagingServiceStub(channel).Consume(iter(requests), metadata=GUEST)
            assert next(stream).HasField("opened")
            first, second = next(stream).deliveries.deliveries
            stopping = threading.Thread(target=own.stop)
            stopping.start()
            eventually(lambda: is_ready(own), False)

            for delivery, outcome in ((first, messaging_pb2.OUTCOME_ACK), (second, messaging_pb2.OUTCOME_REQUEUE)):
                settlement = messaging_pb2.Settlement(outcome=outcome)
                settlement.ranges.add(first=delivery.sequence, last=delivery.sequence)
                requests.put(messaging_pb2.ConsumeRequest(settle=settlement))
            with pytest.raises(grpc.RpcError) as ended:
                list(stream)
            stopping.join()
        assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
        own.start()
        with penstock.connect(own.uri()) as connection:
            message = connection.get("jobs")
            assert message is not None
            assert (message.body, message.redelivered) == (b"open", True)
            assert connection.get("jobs") is None


def is_ready(broker: Broker) -> bool:
    try:
        return "ok" in broker.scrape("/health/ready")
    except OSError:
        return False
