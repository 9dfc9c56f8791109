"""A disk that changes what it has is noticed while other replicas have it, and the broker repairs its replica."""

import os
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

import pytest

import penstock
from support.broker import Broker
from support.serving_cluster import NAMES, SECONDS_MAX, ServingCluster
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
QUEUE: Final = "jobs"
BODIES: Final = [b"message %06d " % number + b"x" * 1000 for number in range(3000)]
"""More than a segment: the one that is written is not checked."""


def change_a_bit(broker: Broker, content: bytes) -> None:
    """Change a bit of a message in a file of a broker that runs."""
    for path in sorted(broker.data_dir.glob("*/msgs.*")):
        at = path.read_bytes().find(content)
        if at >= 0:
            with path.open("r+b", buffering=0) as file:
                os.pwrite(file.fileno(), bytes([content[0] ^ 1]), at)
            return
    raise AssertionError(f"{content!r} is in no segment")


def test_a_bit_that_flips_on_the_disk_of_a_follower_is_found_and_repaired(tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("cluster_scrub_hours = 0.0003\n")
    with ServingCluster(tmp_path, "--config", str(settings)) as cluster:
        with penstock.connect(cluster.brokers[NAMES[0]].uri()) as client:
            client.declare_queue(QUEUE)
            client.publish_many(BODIES, routing_key=QUEUE)
        cluster.until_all_in_sync()
        hit = next(name for name in NAMES if name != cluster.leader())
        broker = cluster.brokers[hit]

        change_a_bit(broker, BODIES[42][:16])

        eventually(lambda: "corrupt log set aside" in broker.log, True, SECONDS_MAX)
        cluster.until_all_in_sync()
        with penstock.connect(broker.uri()) as client:
            client.admin.move_leader("/", hit)
        with penstock.connect(broker.uri() + "?follow=false") as client:
            taken = islice(client.consume(QUEUE, auto_ack=True), len(BODIES))
            assert [message.body for message in taken] == BODIES
        assert [broker.is_running for broker in cluster.brokers.values()] == [True] * 3


def test_a_leader_that_finds_a_flipped_bit_when_it_sends_records_is_repaired(tmp_path: Path) -> None:
    """It halted, and its log stayed as it was until the next check."""
    with ServingCluster(tmp_path) as cluster:
        with penstock.connect(cluster.brokers[NAMES[0]].uri()) as client:
            client.declare_queue(QUEUE)
            client.publish_many(BODIES, routing_key=QUEUE)
        cluster.until_all_in_sync()
        leader = cluster.leader()
        blank = next(name for name in NAMES if name != leader)
        cluster.brokers[blank].kill()
        for log in cluster.brokers[blank].data_dir.glob("*/replica"):
            if log.parent.name != "meta":
                log.parent.rename(tmp_path / "lost")
        change_a_bit(cluster.brokers[leader], BODIES[42][:16])

        cluster.brokers[blank].start()

        eventually(lambda: "corrupt log set aside" in cluster.brokers[leader].log, True, SECONDS_MAX)
        cluster.until_all_in_sync()
        with penstock.connect(cluster.brokers[blank].uri()) as client:
            taken = islice(client.consume(QUEUE, auto_ack=True), len(BODIES))
            assert [message.body for message in taken] == BODIES


def test_a_leader_whose_log_is_copied_finds_a_flipped_bit_before_it_is_on_two_disks(tmp_path: Path) -> None:
    """The copy was taken as it was, and took the place of a log that had the message."""
    with ServingCluster(tmp_path, shards=1) as cluster:
        with penstock.connect(cluster.brokers[NAMES[0]].uri()) as client:
            client.declare_queue(QUEUE)
            client.declare_queue("done")
            client.publish_many([b"done" * 250] * 2000, routing_key="done")
            client.publish_many(BODIES, routing_key=QUEUE)
            client.purge_queue("done")
            leader = cluster.leader()

            def is_first_segment_gone() -> bool:
                # Checkpoints come with segments that are sealed.
                client.publish_many([b"done" * 250] * 500, routing_key="done")
                return first_position(cluster.brokers[leader]) > 0

            eventually(is_first_segment_gone, True, SECONDS_MAX)
        cluster.until_all_in_sync()
        blank = next(name for name in NAMES if name != leader)
        cluster.brokers[blank].kill()
        for log in cluster.brokers[blank].data_dir.glob("*/replica"):
            if log.parent.name != "meta":
                log.parent.rename(tmp_path / "lost")
        # In a segment that has nothing to rewrite, which would find it, too.
        change_a_bit(cluster.brokers[leader], BODIES[1500][:16])

        cluster.brokers[blank].start()

        eventually(lambda: "corrupt log set aside" in cluster.brokers[leader].log, True, SECONDS_MAX)
        cluster.until_all_in_sync()
        assert "log replaced by a copy" in cluster.brokers[blank].log
        with penstock.connect(cluster.brokers[blank].uri()) as client:
            taken = islice(client.consume(QUEUE, auto_ack=True), len(BODIES))
            assert [message.body for message in taken] == BODIES


def first_position(broker: Broker) -> int:
    """Return the position of the first record that a broker has of `/`, which removes segments meanwhile."""
    headers: list[bytes] = []
    for path in broker.data_dir.glob("*/msgs.*"):
        if path.parent.name != "meta" and path.suffix != ".idx":
            with suppress(FileNotFoundError):
                headers.append(path.read_bytes()[:64])
    return min(int.from_bytes(header[40:48], "little") for header in headers if header.startswith(b"PNSTKSEG"))
