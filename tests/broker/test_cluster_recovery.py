"""An operator recovers a virtual host from a replica that lags, because the disks of those in sync are lost.

The messages that it had are there, publishing goes on, and nothing is changed without the operator's word. A disk that
was counted as lost and comes back is set aside.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client.cluster_records import ClusterShard
from penstock.storage import directory_name
from penstock.storage.setting_aside import SET_ASIDE
from support.broker import penstock_command
from support.serving_cluster import NAMES, SECONDS_MAX, ServingCluster, until_done
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
QUEUE, SHARDS = "jobs", 3
KEPT, LOST, LATER = ([f"{word} {number}".encode() for number in range(20)] for word in ("kept", "lost", "later"))


def run(cluster: ServingCluster, at: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [penstock_command(), "cluster", *arguments, "--uri", cluster.brokers[at].uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


def recover(cluster: ServingCluster, at: str, broker: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return run(cluster, at, "recover", "/", "--from", broker, *flags)


def shards(cluster: ServingCluster, at: str) -> list[ClusterShard]:
    with penstock.connect(cluster.brokers[at].uri()) as connection:
        return [each for each in connection.admin.cluster_status().shards if each.vhost == "/"]


def in_sync(cluster: ServingCluster, at: str) -> list[str]:
    """Return the brokers that are in sync in any of the shards."""
    replicas = (replica for shard in shards(cluster, at) for replica in shard.replicas)
    return sorted({replica.broker for replica in replicas if replica.in_sync})


def publish(cluster: ServingCluster, at: str, bodies: list[bytes]) -> None:
    with penstock.connect(cluster.brokers[at].uri()) as connection:
        for body in bodies:
            connection.publish(body, routing_key=QUEUE)


def consume(cluster: ServingCluster, at: str) -> Iterator[bytes]:
    with penstock.connect(cluster.brokers[at].uri()) as connection:
        while (message := connection.get(QUEUE)) is not None:
            yield message.body
            message.ack()


def folder(cluster: ServingCluster, broker: str) -> Path:
    return cluster.brokers[broker].data_dir / directory_name("/")


def lag(cluster: ServingCluster) -> tuple[str, str, str]:
    """Return the leader of `/`, the other broker in sync, and a stopped one that lacks messages."""
    cluster.until_all_in_sync()
    leader = cluster.leader()
    other, left = (name for name in NAMES if name != leader)
    with penstock.connect(cluster.brokers[leader].uri()) as connection:
        connection.declare_queue(QUEUE)
    publish(cluster, leader, KEPT)
    cluster.brokers[left].stop()
    eventually(lambda: in_sync(cluster, leader), sorted([leader, other]), SECONDS_MAX)
    publish(cluster, leader, LOST)
    return leader, other, left


def recovered(result: subprocess.CompletedProcess[str]) -> Any:
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_a_virtual_host_goes_on_from_a_replica_that_lagged(tmp_path: Path) -> None:
    with ServingCluster(tmp_path, shards=SHARDS) as cluster:
        leader, other, left = lag(cluster)
        refused = recover(cluster, other, other, "--accept-loss")
        assert (refused.returncode, f"is led by broker '{leader}'" in refused.stderr) == (1, True), refused
        cluster.kill_all()
        away = tmp_path / "away"
        folder(cluster, other).rename(away)
        shutil.rmtree(folder(cluster, leader))
        cluster.start_all()

        eventually(lambda: recover(cluster, leader, left).returncode, 0, SECONDS_MAX)
        shown = recover(cluster, leader, left)
        assert "nothing was changed" in shown.stderr
        assert [shard.led for shard in shards(cluster, leader)] == [False] * SHARDS
        blank = recover(cluster, left, leader, "--accept-loss")
        assert f"has more at broker '{left}'" in blank.stderr
        unknown = recover(cluster, left, "mq-7", "--accept-loss")
        assert "broker 'mq-7' not found" in unknown.stderr

        done = recovered(recover(cluster, leader, left, "--accept-loss", "--output", "json"))
        assert [(each["recovered"], each["epoch"] > 0) for each in done] == [(True, True)] * SHARDS
        until_done(lambda: publish(cluster, left, LATER[:1]))
        again = recover(cluster, other, left, "--accept-loss")
        assert "as before" in again.stdout or "is led by broker" in again.stderr, again

        publish(cluster, left, LATER[1:])
        cluster.until_all_in_sync()
        found = [recovery for shard in shards(cluster, other) for recovery in shard.recoveries]
        assert [(recovery.broker, recovery.by) for recovery in found] == [(left, "guest")] * SHARDS
        assert "guest" in run(cluster, other, "status").stdout.rpartition("recovered")[2]
        for broker in cluster.brokers.values():
            assert "shard recovered by an operator: confirmed messages may be lost" in broker.log

        cluster.brokers[other].stop()
        shutil.rmtree(folder(cluster, other))
        away.rename(folder(cluster, other))
        cluster.brokers[other].start()
        eventually((cluster.brokers[other].data_dir / SET_ASIDE).exists, True, SECONDS_MAX)
        cluster.until_all_in_sync()
        assert len({path.parent for path in (cluster.brokers[other].data_dir / SET_ASIDE).glob("*/msgs.*")}) == SHARDS
        assert "log set aside" in cluster.brokers[other].log
        leader = cluster.leader()
        assert list(consume(cluster, leader)) == KEPT + LATER
