"""Findings of Jepsen about other brokers, each as a scenario of three brokers with clients.

`docs/cluster.md` lists all of them. `JEPSEN_SEED` draws the files that are changed, and `JEPSEN_FILES` says how many.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Final

import pytest

import penstock
from support.broker import Broker, BrokerError
from support.serving_cluster import NAMES, SECONDS_MAX, ServingCluster
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
QUEUE: Final = "jobs"
BODIES: Final = [b"%d" % number for number in range(100)]
NO_ANSWER_S: Final = 1.0
"""A publish that cannot be committed is given up after this time."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingCluster]:
    with ServingCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.until_all_in_sync()
        yield cluster


def staying_at(broker: Broker) -> str:
    """Return the URI of a client that follows no hint."""
    return broker.uri() + "?follow=false"


def others_than(name: str) -> tuple[str, str]:
    first, second = (each for each in NAMES if each != name)
    return first, second


def by_offset(broker: Broker, stream: str) -> dict[int, bytes]:
    """Return all messages of a stream at the broker that leads."""
    with penstock.connect(staying_at(broker)) as client:
        return {message.offset: message.body for message in client.stream(stream).read("first", until="next")}


def move(cluster: ServingCluster, to: str) -> None:
    """Move the leader of `/`, once its replica there is in sync."""

    def moves() -> bool:
        try:
            with penstock.connect(cluster.brokers[to].uri()) as client:
                client.admin.move_leader("/", to)
        except (penstock.PreconditionFailedError, penstock.ConnectionLostError):
            return False
        return True

    eventually(moves, True, SECONDS_MAX)


def test_an_offset_never_names_two_messages_and_none_is_read_that_is_not_committed(cluster: ServingCluster) -> None:
    """Redpanda gave an offset to two messages, and showed messages that were lost later."""
    name = "inconsistent"
    leader = cluster.leader()
    first, second = others_than(leader)
    with penstock.connect(cluster.brokers[leader].uri()) as client:
        client.declare_stream(name)
        client.stream(name).publish_many(BODIES)
    for other in (first, second):
        cluster.brokers[other].kill()
    with penstock.connect(staying_at(cluster.brokers[leader]), timeout=NO_ANSWER_S) as client:
        with pytest.raises((penstock.ConnectionLostError, penstock.DeadlineError)):
            client.stream(name).publish(b"never committed")
        read = client.stream(name).read("first", idle_timeout=0.2)
        assert b"never committed" not in [message.body for message in read]
    cluster.brokers[leader].kill()
    cluster.start(first, second)

    between = cluster.brokers[cluster.leader(among=(first, second))]
    with penstock.connect(between.uri()) as client:
        client.stream(name).publish_many([b"committed"] * 3)
    before = by_offset(between, name)
    cluster.start(leader)
    move(cluster, leader)

    assert by_offset(cluster.brokers[leader], name) == before
    assert list(before.values()) == [*BODIES, *[b"committed"] * 3]


class Poller(Thread):
    """Asks one broker for offsets of a stream, its messages, and the offset of a group, until it is stopped."""

    def __init__(self, broker: Broker, stream: str, group: str) -> None:
        super().__init__(daemon=True)
        self.next: list[int] = []
        self.counts: list[int] = []
        self.stored: list[int | None] = []
        self.failures: list[str] = []
        self._broker, self._stream, self._group = broker, stream, group
        self._stopping = Event()

    def run(self) -> None:
        while not self._stopping.wait(0.01):
            try:
                with penstock.connect(staying_at(self._broker), timeout=5) as client:
                    stream = client.stream(self._stream)
                    while not self._stopping.wait(0.01):
                        for ask in (self._ask_next, self._ask_count, self._ask_group):
                            with suppress(penstock.ConnectionLostError):  # it does not lead
                                ask(stream)
            except (penstock.ConnectionLostError, penstock.DeadlineError):
                continue
            except Exception as error:  # noqa: BLE001 (the test fails with it)
                self.failures.append(repr(error))
                return

    def _ask_next(self, stream: "penstock.Stream") -> None:
        self.next.append(stream.offsets()[0].next)

    def _ask_count(self, stream: "penstock.Stream") -> None:
        self.counts.append(stream.info().message_count)

    def _ask_group(self, stream: "penstock.Stream") -> None:
        groups = {each.name: each for each in stream.groups()}
        self.stored.append(groups[self._group].offset if self._group in groups else None)

    def has_asked(self) -> bool:
        """Return whether the broker has answered everything once, as it does while it leads, or something failed."""
        return bool(self.stored or self.failures)

    def end(self) -> None:
        self._stopping.set()
        self.join()


def test_no_broker_says_an_offset_of_zero_while_leaders_change(cluster: ServingCluster) -> None:
    """Bufstream answered with an offset of zero when it did not know better."""
    name, group, stored = "zero", "readers", 30
    leader = cluster.leader()
    with penstock.connect(cluster.brokers[leader].uri()) as client:
        client.declare_stream(name)
        client.stream(name).publish_many(BODIES)
        client.stream(name).store(group, stored)
        end = client.stream(name).offsets()[0].next
    polling = {broker: Poller(cluster.brokers[broker], name, group) for broker in cluster.brokers}
    pollers = list(polling.values())
    for poller in pollers:
        poller.start()
    eventually(polling[leader].has_asked, True, SECONDS_MAX)

    for to in (*others_than(leader), leader):
        move(cluster, to)
        with penstock.connect(cluster.brokers[to].uri()) as client:
            client.stream(name).publish(b"later")
        eventually(polling[to].has_asked, True, SECONDS_MAX)
    for poller in pollers:
        poller.end()

    assert [poller.failures for poller in pollers] == [[], [], []]
    assert min(number for poller in pollers for number in poller.next) == end
    assert min(number for poller in pollers for number in poller.counts) == len(BODIES)
    assert {number for poller in pollers for number in poller.stored} == {stored}
    assert all(poller.next == sorted(poller.next) for poller in pollers)


def flip(path: Path, random: Random) -> None:
    content = bytearray(path.read_bytes())
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    path.write_bytes(content)


def cut_short(path: Path, random: Random) -> None:
    os.truncate(path, random.randrange(path.stat().st_size))


def remove(path: Path, _: Random) -> None:
    path.unlink()


DAMAGES: Final[list[Callable[[Path, Random], None]]] = [flip, cut_short, remove]


def files_of(broker: Broker) -> list[Path]:
    """Return the files of a broker that have bytes, without the segments: a start need not read all of those."""
    found = (path for path in sorted(broker.data_dir.rglob("*")) if path.is_file() and path.stat().st_size)
    return [path for path in found if not path.name.startswith(("msgs.", ".lock"))]


def start_damaged(broker: Broker) -> str:
    """Start a broker as an operator does: with an empty data directory, if it says that it cannot use its own.

    A replica of a virtual host that is damaged begins anew by itself.
    """
    seen = len(broker.log)
    try:
        broker.start()
    except BrokerError:
        broker.data_dir.rename(broker.data_dir.with_name(f"moved-{time.monotonic_ns()}"))
        broker.start()
        return "refused"
    said = broker.log[seen:]
    if "replica not opened" not in said:
        return "started"
    eventually(lambda: "corrupt log set aside" in broker.log[seen:], True, SECONDS_MAX)
    return "begun anew"


def test_a_broker_whose_files_are_damaged_deletes_nothing(tmp_path: Path) -> None:
    """A broker of NATS with a bad snapshot took a stream for one that was not its own, led, and had it deleted."""
    seed = int(os.environ.get("JEPSEN_SEED") or Random().randrange(1_000_000))
    count = int(os.environ.get("JEPSEN_FILES") or 2)
    print(f"JEPSEN_SEED={seed} JEPSEN_FILES={count}")
    random = Random(seed)
    with ServingCluster(tmp_path) as cluster:
        with penstock.connect(cluster.brokers[NAMES[0]].uri()) as client:
            client.declare_queue(QUEUE)
            client.publish_many(BODIES, routing_key=QUEUE)
        for number in range(count):
            cluster.until_all_in_sync()
            damaged = cluster.brokers[NAMES[number % len(NAMES)]]
            damaged.kill()
            path, damage = random.choice(files_of(damaged)), random.choice(DAMAGES)
            damage(path, random)
            how = start_damaged(damaged)
            print(f"{damage.__name__} {path.relative_to(tmp_path)}: {how}")
            cluster.until_all_in_sync()
            with penstock.connect(damaged.uri()) as client:
                assert [queue.name for queue in client.admin.list_queues()] == [QUEUE]

        for name in NAMES:
            move(cluster, name)
            with penstock.connect(staying_at(cluster.brokers[name])) as client:
                assert client.admin.get_queue(QUEUE).ready_count == len(BODIES)
        with penstock.connect(cluster.brokers[name].uri()) as client:
            taken = islice(client.consume(QUEUE, auto_ack=True), len(BODIES))
            assert sorted(message.body for message in taken) == sorted(BODIES)


def flip_in(broker: Broker, content: bytes) -> None:
    """Change a bit of a message on the disk of a broker that is stopped."""
    for path in sorted(broker.data_dir.glob("*/msgs.*")):
        found = bytearray(path.read_bytes())
        at = found.find(content)
        if at >= 0:
            found[at] ^= 1
            path.write_bytes(found)
            return
    raise AssertionError(f"{content!r} is in no segment")


def test_a_leader_whose_disk_has_changed_a_message_leaves_it_to_another_one(tmp_path: Path) -> None:
    """NATS lost messages by a bit that flipped on a minority of disks, once one of these brokers led."""
    bodies = [b"message %04d of many" % number for number in range(100)]
    with ServingCluster(tmp_path) as cluster:
        with penstock.connect(cluster.brokers[NAMES[0]].uri()) as client:
            client.declare_queue(QUEUE)
            client.publish_many(bodies, routing_key=QUEUE)
        cluster.until_all_in_sync()
        hit, _ = others_than(cluster.leader())
        cluster.brokers[hit].kill()
        flip_in(cluster.brokers[hit], bodies[42])
        cluster.brokers[hit].start()
        move(cluster, hit)

        addresses = ",".join(broker.address for broker in cluster.brokers.values())
        with penstock.connect(f"penstock://guest:guest@{addresses}/") as client:
            taken: list[bytes] = []
            for message in client.consume(QUEUE, idle_timeout=10.0):
                taken.append(message.body)
                message.ack()
                if set(taken) == set(bodies):
                    break
        assert set(taken) == set(bodies)
        assert "replica halted" in cluster.brokers[hit].log
        eventually(lambda: "corrupt log set aside" in cluster.brokers[hit].log, True, SECONDS_MAX)
        cluster.until_all_in_sync()
