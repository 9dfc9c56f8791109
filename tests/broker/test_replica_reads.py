"""Streams that are read from the replicas of brokers that do not lead."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Thread
from typing import Any

import grpc
import pytest

import penstock
import penstock.aio
from penstock.v1 import streams_pb2
from support.broker import Broker
from support.plain_client import SECONDS_MAX, Call, PlainClient, plain_client, refusal_of
from support.serving_cluster import NAMES, ServingCluster
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
native_and_pure = pytest.mark.parametrize("native", [True, False], ids=["native", "pure"])
LEADER = "penstock-leader"
"""The header of an answer that the leader has given to another broker."""
READER = (("authorization", "Basic cmVhZGVyOnBhc3N3b3Jk"),)
COUNT = 4_000
OPENING_MAX = 16
"""Calls that begin at the same time."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingCluster]:
    with ServingCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.until_all_in_sync()
        yield cluster


@pytest.fixture
def other(cluster: ServingCluster) -> Broker:
    """Return a broker that does not lead, once it has a replica in sync."""
    cluster.until_all_in_sync()
    leader = cluster.leader()
    return next(cluster.brokers[name] for name in NAMES if name != leader)


@pytest.fixture
def client(other: Broker) -> Iterator[PlainClient]:
    with plain_client(other.address) as client:
        yield client


def made(client: PlainClient, name: str, *bodies: bytes) -> str:
    """Make a stream with messages, and return its name once the replica of this client's broker has them."""
    client.declare_stream(name)
    client.publish(name, *bodies)
    reading = client.reading(name, from_replica=True)
    reading.deliveries(len(bodies))
    reading.end()
    return name


def bodies_of(found: Iterator[Any] | list[Any]) -> list[bytes]:
    return [one.body for one in found]


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


@contextmanager
def standing_still(broker: Broker) -> Iterator[None]:
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def is_relayed(reading: Call) -> bool:
    return LEADER in reading.headers()


def test_a_replica_answers_for_a_stream_while_publishing_goes_on(client: PlainClient) -> None:
    stream = made(client, "going on", *numbers(0, 10))
    reading = client.reading(stream, from_replica=True)
    opened = next(reading.answers).opened
    assert (opened.first, opened.begin, opened.next) == (1, 1, 11)
    assert bodies_of(reading.deliveries(10)) == numbers(0, 10)

    for first in range(10, 200, 10):
        client.publish(stream, *numbers(first, first + 10))
        came = reading.deliveries(10)
        assert bodies_of(came) == numbers(first, first + 10)
        assert [one.sequence for one in came] == list(range(first + 1, first + 11))

    assert not is_relayed(reading)
    reading.end()


def test_a_read_that_does_not_ask_for_a_replica_or_has_a_group_goes_to_the_leader(client: PlainClient) -> None:
    stream = made(client, "asked", b"1")

    for fields in ({}, {"from_replica": True, "group": "billing"}):
        reading = client.reading(stream, **fields)
        assert bodies_of(reading.deliveries(1)) == [b"1"]
        assert is_relayed(reading)
        reading.end()


def test_the_leader_answers_by_itself(cluster: ServingCluster) -> None:
    with plain_client(cluster.brokers[cluster.leader()].address) as client:
        reading = client.reading(made(client, "at the leader", b"1"), from_replica=True)

        assert bodies_of(reading.deliveries(1)) == [b"1"]
        reading.end()


def test_a_replica_sends_what_is_committed_while_the_leader_stands_still(
    cluster: ServingCluster, client: PlainClient
) -> None:
    large = [bytes([number]) * (40 << 10) for number in range(20)]
    stream = made(client, "still", *large)
    reading = client.reading(stream, from_replica=True, credit=1)
    came = reading.deliveries(1)
    leader = cluster.brokers[cluster.leader()]

    with standing_still(leader):
        while len(came) < len(large):
            reading.send(streams_pb2.ReadRequest(credit={"responses": 1}))
            came += reading.deliveries(1)

    assert bodies_of(came) == large
    reading.end()
    cluster.until_all_in_sync()


def test_starts_and_ends_are_those_of_the_leader(cluster: ServingCluster, client: PlainClient) -> None:
    stream = made(client, "starts", *numbers(1, 11))
    starts: list[dict[str, Any]] = [{"offset": 4}, {"last_count": 3}, {"place": 3}, {"timestamp_ms": 1}, {"offset": 99}]

    def answers(of: PlainClient, **fields: Any) -> list[tuple[int, int, int, list[bytes]]]:
        found = []
        for start in starts:
            reading = of.reading(stream, start=start, end=11, **fields)
            opened = next(reading.answers).opened
            came = [one for answer in reading.answers for one in answer.deliveries.deliveries]
            found.append((opened.first, opened.begin, opened.next, bodies_of(came)))
        return found

    with plain_client(cluster.brokers[cluster.leader()].address) as at_leader:
        expected = answers(at_leader)
    assert answers(client, from_replica=True) == expected
    assert [each[1] for each in expected[:4]] == [4, 8, 10, 1]


def test_a_read_ends_with_its_permission_and_with_its_stream(other: Broker, client: PlainClient) -> None:
    stream = made(client, "secret", b"1")
    with penstock.connect(other.uri()) as root:
        root.admin.put_user("reader", "password")
        root.admin.set_permission("reader", "/", read=".*", write="", configure="")

        def opened() -> Call | None:
            with_rights = of_reader.reading(stream, from_replica=True)
            try:
                with_rights.deliveries(1)
            except grpc.RpcError:  # the permission arrives later
                return None
            return with_rights

        with plain_client(other.address, READER) as of_reader:
            found: list[Call] = []

            def is_open() -> bool:
                reading = opened()
                found.extend([] if reading is None else [reading])
                return reading is not None

            eventually(is_open, True, SECONDS_MAX)
            assert not is_relayed(found[0])
            root.admin.set_permission("reader", "/", read="", write="", configure="")
            assert isinstance(refusal_of(lambda: next(found[0].answers)), penstock.AccessRefusedError)
            refused = of_reader.reading(stream, from_replica=True)
            assert isinstance(refusal_of(lambda: next(refused.answers)), penstock.AccessRefusedError)

        reading = client.reading(stream, from_replica=True)
        reading.deliveries(1)
        root.delete_stream(stream)
        assert [answer.cancelled.reason for answer in reading.answers] == [f"queue '{stream}' was deleted"]
        reading = client.reading(stream, from_replica=True)
        assert isinstance(refusal_of(lambda: next(reading.answers)), penstock.NotFoundError)


def test_reads_that_are_opened_while_their_stream_is_deleted_end(client: PlainClient) -> None:
    for number in range(10):
        stream = made(client, f"brief {number}", b"1")
        deletion = Thread(target=client.delete_stream, args=(stream,))
        deletion.start()
        readings: list[Call] = []
        while deletion.is_alive():
            readings.append(client.reading(stream, from_replica=True))
            readings[-min(len(readings), OPENING_MAX)].headers()
        deletion.join()

        for reading in readings:
            assert ended_with(reading) in {"cancelled", "UNAVAILABLE", "NOT_FOUND"}


def ended_with(reading: Call) -> str:
    try:
        *_, last = reading.answers
    except grpc.RpcError as error:
        return str(error.code().name)
    return str(last.WhichOneof("response"))


def uri_of(cluster: ServingCluster, first: str) -> str:
    """Return a URI with the addresses of all brokers, one of them first."""
    names = [first, *(name for name in NAMES if name != first)]
    return f"penstock://guest:guest@{','.join(cluster.brokers[name].address for name in names)}/"


def publish_all(uri: str, name: str) -> None:
    """Publish numbers, through the deaths of leaders, each stored once."""
    with penstock.connect(uri, timeout=60.0, deduplicate=True) as connection:
        # Once, because finding its partitions is a call that ends with its broker.
        stream = connection.stream(name)
        for first in range(0, COUNT, 20):
            stream.publish_many(numbers(first, first + 20))


def read_all(
    cluster: ServingCluster, name: str, first: str, native: bool, act: Callable[[], None]
) -> tuple[list[int], list[bytes]]:
    """Publish and read at the same time, and act in the middle; return the offsets and the bodies that were read."""
    offsets, found = [], []
    uri = uri_of(cluster, first)
    with penstock.connect(uri, native=native) as connection, ThreadPoolExecutor(1) as threads:
        connection.declare_stream(name)
        publishing = threads.submit(publish_all, uri, name)
        with connection.stream(name).read("first", count=COUNT, from_replica=True) as reader:
            for message in reader:
                offsets.append(message.offset)
                found.append(message.body)
                if len(found) == COUNT // 4:
                    act()
        publishing.result(SECONDS_MAX)
    return offsets, found


@native_and_pure
@pytest.mark.parametrize("victim", ["leader", "follower"])
def test_a_reader_goes_through_the_death_of_a_broker(cluster: ServingCluster, victim: str, native: bool) -> None:
    cluster.until_all_in_sync()
    leader = cluster.leader()
    at = next(name for name in NAMES if name != leader)
    killed = cluster.brokers[leader if victim == "leader" else at]

    offsets, found = read_all(cluster, f"killed {victim} {native}", at, native, killed.kill)

    assert found == numbers(0, COUNT)
    assert offsets == sorted(set(offsets))
    killed.start()


def test_a_reader_stays_when_its_broker_begins_and_ends_to_lead(cluster: ServingCluster) -> None:
    cluster.until_all_in_sync()
    leader = cluster.leader()
    at = next(name for name in NAMES if name != leader)

    def move_there_and_back() -> None:
        for broker in (at, leader):
            cluster.until_all_in_sync()
            with penstock.connect(cluster.brokers[at].uri()) as connection:
                connection.admin.move_leader("/", broker)

    offsets, found = read_all(cluster, "moved", at, True, move_there_and_back)

    assert found == numbers(0, COUNT)
    assert offsets == sorted(set(offsets))


@native_and_pure
def test_a_reader_of_asyncio_reads_from_a_replica(other: Broker, native: bool) -> None:
    name = f"asyncio {native}"

    async def read() -> list[bytes]:
        async with penstock.aio.connect(other.uri(), native=native) as connection:
            await connection.declare_stream(name)
            await connection.stream(name).publish_many(numbers(0, 100))
            reader = connection.stream(name).read("first", count=100, from_replica=True)
            return [message.body async for message in reader]

    before = delivered_by(other)
    assert asyncio.run(read()) == numbers(0, 100)
    assert delivered_by(other) == before + 100


def delivered_by(broker: Broker) -> int:
    """Return how many messages a broker has delivered by itself."""
    lines = broker.scrape().splitlines()
    name = "penstock_messages_delivered_total"
    return sum(int(float(line.split()[-1])) for line in lines if line.split("{")[0].split(" ")[0] == name)


def test_a_reader_follows_no_leader(other: Broker) -> None:
    before = delivered_by(other)
    with penstock.connect(other.uri()) as connection:
        connection.declare_stream("unmoved")
        connection.stream("unmoved").publish_many(numbers(0, 50))
        reader = connection.stream("unmoved").read("first", count=50, from_replica=True)
        assert bodies_of(list(reader)) == numbers(0, 50)
        grouped = connection.stream("unmoved").read("first", count=50, group="billing", from_replica=True)
        assert bodies_of(list(grouped)) == numbers(0, 50)

    assert delivered_by(other) == before + 50, "that of the group was read at the leader"


def test_a_read_ends_with_its_virtual_host(other: Broker) -> None:
    # The last one here: the record of a deleted shard stays at the coordinator.
    with penstock.connect(other.uri()) as root:
        root.admin.create_vhost("short")
        root.admin.set_permission("guest", "short", configure=".*", write=".*", read=".*")
        with penstock.connect(other.uri("short")) as connection:
            connection.declare_stream("events")
            connection.stream("events").publish(b"1")
            messages = iter(connection.stream("events").read("first", from_replica=True))
            assert next(messages).body == b"1"

            root.admin.delete_vhost("short")

            with pytest.raises(penstock.PenstockError, match="short"):
                next(messages)
