"""Clients of a cluster of three brokers: they go to the leader, and through its death and its moves, by themselves."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from threading import Thread

import pytest

import penstock
import penstock.aio
from support.serving_cluster import NAMES, SECONDS_MAX, ServingCluster
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
native_and_pure = pytest.mark.parametrize("native", [True, False], ids=["native", "pure"])
COUNT = 10_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingCluster]:
    with ServingCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.until_all_in_sync()
        yield cluster


def uri_of(cluster: ServingCluster, first: str) -> str:
    """Return a URI with the addresses of all brokers, one of them first."""
    names = [first, *(name for name in NAMES if name != first)]
    return f"penstock://guest:guest@{','.join(cluster.brokers[name].address for name in names)}/"


def follower_of(leader: str) -> str:
    return next(name for name in NAMES if name != leader)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@native_and_pure
def test_a_client_at_any_broker_does_everything(cluster: ServingCluster, native: bool) -> None:
    name = f"everything-{native}"
    other = cluster.brokers[follower_of(cluster.leader())]
    with penstock.connect(other.uri(), native=native, durability="replicated") as client:
        client.declare_queue(name)
        client.publish(b"1", routing_key=name)
        client.publish_many([b"2", b"3"], routing_key=name)
        got = client.get(name)
        assert got is not None
        got.ack()
        assert [message.body for message in islice(client.consume(name, auto_ack=True), 2)] == [b"2", b"3"]
        assert client.purge_queue(name) == 0

        stream = f"stream-{native}"
        client.declare_stream(stream)
        client.stream(stream).publish_many(numbers(10))
        assert [message.body for message in client.stream(stream).read("first", until="next")] == numbers(10)
        assert client.admin.list_producers() == []


@native_and_pure
def test_a_client_of_asyncio_at_any_broker_does_everything(cluster: ServingCluster, native: bool) -> None:
    name = f"asyncio-{native}"
    other = cluster.brokers[follower_of(cluster.leader())]

    async def do_everything() -> list[bytes]:
        async with penstock.aio.connect(other.uri(), native=native) as client:
            await client.declare_queue(name)
            await asyncio.gather(*(client.publish(body, routing_key=name) for body in numbers(100)))
            found = []
            async for message in client.consume(name, auto_ack=True):
                found.append(message.body)
                if len(found) == 100:
                    return found
        return []

    assert asyncio.run(do_everything()) == numbers(100)


class Consumer(Thread):
    """Acknowledges what comes, and keeps the bodies of what came first."""

    def __init__(self, uri: str, queue: str, native: bool, count: int) -> None:
        super().__init__(daemon=True)
        self.first: list[int] = []
        self.count = 0
        self.failure: Exception | None = None
        self._uri, self._queue, self._native, self._wanted = uri, queue, native, count

    def run(self) -> None:
        try:
            self._consume()
        except Exception as error:  # noqa: BLE001 (the test fails with it)
            self.failure = error

    def _consume(self) -> None:
        seen: set[int] = set()
        with penstock.connect(self._uri, native=self._native) as connection:
            for message in connection.consume(self._queue, prefetch=500):
                self.count += 1
                number = int(message.body)
                if number not in seen:
                    seen.add(number)
                    self.first.append(number)
                message.ack()
                if len(seen) == self._wanted:
                    return


def bodies(act: Callable[[], None], *at: int) -> Iterator[bytes]:
    """Yield the bodies to publish, and act before some of them, while many before those are not confirmed."""
    for number in range(COUNT):
        if number in at:
            act()
        yield b"%d" % number


@native_and_pure
def test_clients_go_through_the_moves_of_a_leader_without_an_error(cluster: ServingCluster, native: bool) -> None:
    name = f"moved-{native}"
    uri = uri_of(cluster, follower_of(cluster.leader()))
    with penstock.connect(uri, native=native) as client, penstock.connect(uri, native=native) as operator:
        client.declare_queue(name)
        consumer = Consumer(uri, name, native, COUNT)
        consumer.start()

        def move() -> None:
            operator.admin.move_leader("/", follower_of(cluster.leader()))

        assert client.publish_many(bodies(move, 2_500, 5_000, 7_500), routing_key=name) == COUNT
        got = client.get(name)
        if got is not None:
            got.nack()
        consumer.join(SECONDS_MAX)

        assert consumer.failure is None
        assert sorted(consumer.first) == list(range(COUNT))


@native_and_pure
def test_readers_of_a_stream_go_on_where_they_were(cluster: ServingCluster, native: bool) -> None:
    name = f"read-{native}"
    uri = uri_of(cluster, follower_of(cluster.leader()))
    with penstock.connect(uri, native=native) as client:
        client.declare_stream(name)
        stream = client.stream(name)
        stream.publish_many(numbers(100))
        with stream.read("first") as reader:
            messages = iter(reader)
            found = [next(messages).body for _ in range(50)]
            client.admin.move_leader("/", follower_of(cluster.leader()))
            stream.publish_many([b"%d" % number for number in range(100, 200)])
            found += [next(messages).body for _ in range(150)]

        assert found == numbers(200)


@native_and_pure
def test_nothing_is_lost_or_doubled_or_out_of_order_when_the_leader_is_killed(tmp_path: Path, native: bool) -> None:
    with ServingCluster(tmp_path) as cluster:
        cluster.until_all_in_sync()
        killed = cluster.leader()
        with penstock.connect(uri_of(cluster, killed), native=native, deduplicate=True) as client:
            client.declare_queue("jobs")
            assert client.publish_many(bodies(cluster.brokers[killed].kill, COUNT // 2), routing_key="jobs") == COUNT

            assert [message.body for message in islice(client.consume("jobs", auto_ack=True), COUNT)] == numbers(COUNT)
            assert client.get("jobs") is None
            assert [producer.name[:7] for producer in client.admin.list_producers()] == ["client/"]
        with penstock.connect(uri_of(cluster, follower_of(killed)), native=native) as client:
            # Names that were drawn are given up.
            assert client.admin.list_producers() == []


@native_and_pure
def test_a_named_publisher_loses_nothing_and_doubles_nothing_when_the_leader_is_killed(
    tmp_path: Path, native: bool
) -> None:
    with ServingCluster(tmp_path) as cluster:
        cluster.until_all_in_sync()
        killed = cluster.leader()
        with penstock.connect(uri_of(cluster, killed), native=native) as client:
            client.declare_stream("lines")
            stream = client.stream("lines")
            with stream.publisher("importer") as publisher:
                assert publisher.publish_many(bodies(cluster.brokers[killed].kill, COUNT // 2)) == COUNT

            assert [message.body for message in stream.read("first", until="next")] == numbers(COUNT)
        cluster.brokers[killed].start()
        cluster.until_all_in_sync()
        eventually(lambda: cluster.leader() in NAMES, True, SECONDS_MAX)
