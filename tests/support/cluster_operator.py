"""An operator of a cluster of real brokers: the commands of `penstock cluster`, and load meanwhile."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import penstock
from penstock.client.cluster_records import ClusterShard
from support.broker import penstock_command
from support.cluster_load import Consumer, Publisher
from support.serving_cluster import SECONDS_MAX, ServingCluster
from support.waiting import eventually

QUEUE: Final = "jobs"
CONFIRMS: Final = 500
"""Confirms between two steps of the operator."""


def run(cluster: ServingCluster, at: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [penstock_command(), "cluster", *arguments, "--uri", cluster.brokers[at].uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


def done(cluster: ServingCluster, at: str, *arguments: str) -> Any:
    """Return what a command prints as JSON."""
    result = run(cluster, at, *arguments, "--output", "json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def shards(cluster: ServingCluster, at: str) -> dict[str | None, ClusterShard]:
    """Return the first shard of each virtual host, None for the metadata."""
    with penstock.connect(cluster.brokers[at].uri()) as connection:
        return {shard.vhost: shard for shard in reversed(connection.admin.cluster_status().shards)}


@contextmanager
def load(cluster: ServingCluster) -> Iterator[Publisher]:
    """Publish and consume meanwhile; at the end everything that was confirmed has to have come."""
    with penstock.connect(next(iter(cluster.brokers.values())).uri()) as root:
        root.declare_queue(QUEUE)
    addresses = [broker.address for broker in cluster.brokers.values()]
    publisher, consumer = Publisher(addresses, QUEUE), Consumer(addresses, QUEUE)
    publisher.start()
    consumer.start()
    try:
        yield publisher
    finally:
        publisher.end()
    eventually(lambda: publisher.confirmed - set(consumer.received), set(), SECONDS_MAX)
    consumer.end()
    assert publisher.failures + consumer.failures == []
    assert set(consumer.received) <= set(range(publisher.next_number))
    twice = len(consumer.received) - len(set(consumer.received))
    print(f"{len(publisher.confirmed)} confirmed, {twice} delivered again; longest pauses {publisher.pauses()[:5]} s")


def until_more(publisher: Publisher) -> None:
    """Wait until the publisher has some hundred confirms more."""
    wanted = len(publisher.confirmed) + CONFIRMS
    eventually(lambda: len(publisher.confirmed) >= wanted, True, SECONDS_MAX)


def leader_of(cluster: ServingCluster) -> str:
    """Return the leader of `/` once all brokers that run have heard of the same one."""
    found: set[str] = set()

    def is_known() -> bool:
        found.clear()
        found.update(shards(cluster, name)["/"].leader for name, broker in cluster.brokers.items() if broker.is_running)
        return len(found) == 1

    eventually(is_known, True, SECONDS_MAX)
    return found.pop()


def in_sync(cluster: ServingCluster, at: str) -> list[str]:
    return [replica.broker for replica in shards(cluster, at)["/"].replicas if replica.in_sync]
