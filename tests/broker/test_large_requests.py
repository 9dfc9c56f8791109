"""Publish requests of very many messages: stored in rounds, in order, with almost no memory of the broker."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Self

import grpc
import pytest

import penstock
from penstock.v1 import messaging_pb2 as wire
from support import Broker

PUBLISH = "/penstock.v1.MessagingService/Publish"
GUEST = (("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q="),)
WALTER = (("authorization", "Basic d2FsdGVyOnNlY3JldA=="),)
# Two bytes a message; each took 150 bytes and more of memory when a request was parsed as a whole.
COUNT = 2_000_000
GROWTH_KIB_MAX = 96 * 1024


@pytest.fixture
def channel(broker: Broker) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(broker.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel


@pytest.fixture
def root(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(vhost), durability="os") as connection:
        connection.declare_queue("flood")
        yield connection


def publish(channel: grpc.Channel, vhost: str, batch: bytes, who: tuple[tuple[str, str], ...]) -> Iterator[bytes]:
    """Send an encoded batch; yield responses as they come."""
    opening = wire.PublishRequest(open=wire.PublishOpen(vhost=vhost, durability=wire.DURABILITY_OS)).SerializeToString()
    length, number = bytearray(), len(batch)
    while number > 127:
        length.append(number & 127 | 128)
        number >>= 7
    request = b"\x12" + bytes((*length, number)) + batch
    method: Callable[..., Iterator[bytes]] = channel.stream_stream(PUBLISH, None, None)
    return method(iter((opening, request)), metadata=who, timeout=120)


def flood() -> bytes:
    """Return field 4 of a batch, of no bytes, very often."""
    return wire.PublishBatch(routing_key="flood").SerializeToString() + b"\x22\x00" * COUNT


class Watch:
    """The maximum private memory of a process during the block."""

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self._over = Event()
        self.before = self.highest = self._kib()

    def _kib(self) -> int:
        found = re.search(r"RssAnon:\s+(\d+)", self._status.read_text())
        assert found is not None
        return int(found[1])

    def _run(self) -> None:
        while not self._over.wait(0.005):
            self.highest = max(self.highest, self._kib())

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.slow
def test_a_request_of_very_many_messages_is_stored_in_rounds(
    broker: Broker, channel: grpc.Channel, root: penstock.Connection, vhost: str
) -> None:
    confirmed = responses = 0

    with Watch(broker.pid) as watch:
        for answer in publish(channel, vhost, flood(), GUEST):
            response = wire.PublishResponse.FromString(answer)
            assert not response.rejected
            for span in response.confirmed:
                assert span.first == confirmed + 1
                confirmed = span.last
            responses += 1

    assert confirmed == COUNT
    # A round for 1,024 messages, and a response for eight rounds.
    assert 200 < responses < 400
    assert watch.highest - watch.before < GROWTH_KIB_MAX
    assert root.admin.get_queue("flood").ready_count == COUNT


@pytest.mark.slow
def test_a_request_of_very_many_messages_that_are_denied_costs_no_more(
    broker: Broker, channel: grpc.Channel, root: penstock.Connection, vhost: str
) -> None:
    root.admin.put_user("walter", "secret")
    root.admin.set_permission("walter", vhost, "", "", "")
    rejected = 0

    with Watch(broker.pid) as watch:
        for answer in publish(channel, vhost, flood(), WALTER):
            response = wire.PublishResponse.FromString(answer)
            assert not response.confirmed
            rejected += sum(span.last - span.first + 1 for span in response.rejected)

    assert rejected == COUNT
    assert watch.highest - watch.before < GROWTH_KIB_MAX
    root.admin.delete_user("walter")


def test_messages_for_many_queues_keep_their_order_through_the_rounds(
    channel: grpc.Channel, root: penstock.Connection, vhost: str
) -> None:
    queues = [f"queue-{number}" for number in range(300)]
    root.declare_exchange("all", "fanout")
    for queue in queues:
        root.declare_queue(queue)
        root.bind_queue(queue, "all", "")
    bodies = [b"%d" % number for number in range(100)]
    batch = wire.PublishBatch(exchange="all", messages=[wire.Message(body=body) for body in bodies])

    spans = []
    for answer in publish(channel, vhost, batch.SerializeToString(), GUEST):
        spans += [(span.first, span.last) for span in wire.PublishResponse.FromString(answer).confirmed]

    assert [number for first, last in spans for number in range(first, last + 1)] == list(range(1, 101))
    assert len(spans) >= 3, "a round ends after 1,024 places in queues, and eight share a response"
    for queue in (queues[0], queues[-1]):
        assert [message.body for message in root.consume(queue, auto_ack=True, idle_timeout=4)] == bodies
