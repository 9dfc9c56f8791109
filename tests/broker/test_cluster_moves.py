"""An operator of a cluster: its status at every broker."""

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli.cluster_calls import ClusterShard, cluster_status
from support.broker import penstock_command
from support.serving_cluster import NAMES, SECONDS_MAX, ServingCluster
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def run(cluster: ServingCluster, at: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [penstock_command(), "cluster", *arguments, "--uri", cluster.brokers[at].uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


def done(cluster: ServingCluster, at: str, *arguments: str) -> Any:
    """Return what a command prints as JSON."""
    result = run(cluster, at, *arguments, "--output", "json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def shards(cluster: ServingCluster, at: str) -> dict[str | None, ClusterShard]:
    """Return the shards by virtual host, None for the metadata."""
    with penstock.connect(cluster.brokers[at].uri()) as connection:
        return {shard.vhost: shard for shard in cluster_status(connection).shards}


def another(*names: str) -> str:
    return next(name for name in NAMES if name not in names)


def in_sync(cluster: ServingCluster, at: str) -> list[str]:
    return [replica.broker for replica in shards(cluster, at)["/"].replicas if replica.in_sync]


def seen(
    cluster: ServingCluster, at: str
) -> tuple[set[tuple[bool, bool, bool]], str, bool, int, dict[str, int | None]]:
    """Return what a broker shows of the others, and of the leader of `/` and its replicas."""
    with penstock.connect(cluster.brokers[at].uri()) as connection:
        found = cluster_status(connection)
    brokers = {(broker.alive, broker.connected, broker.draining) for broker in found.brokers}
    shard = next(shard for shard in found.shards if shard.vhost == "/")
    lag = {replica.broker: replica.lag_bytes for replica in shard.replicas}
    return brokers, shard.leader, shard.led, shard.min_in_sync, lag


def test_every_broker_shows_brokers_leaders_and_lag(tmp_path: Path) -> None:
    with ServingCluster(tmp_path) as cluster:
        cluster.until_all_in_sync()
        leader = cluster.leader()
        for asked in NAMES:
            expected = ({(True, True, False)}, leader, True, 2, dict.fromkeys(NAMES, 0))
            eventually(partial(seen, cluster, asked), expected, SECONDS_MAX)
        found = done(cluster, asked, "status")
        assert (found["cluster"], found["broker"]) == ("test", asked)
        assert [broker["grpc"] for broker in found["brokers"]] == [cluster.brokers[name].address for name in NAMES]
        assert (found["shards"][0]["name"], found["shards"][0]["vhost"]) == ("meta", None)
        table = run(cluster, asked, "status", "--output", "table")
        assert table.returncode == 0, table.stderr
        assert "(metadata)" in table.stdout

        gone = another(leader)
        cluster.brokers[gone].kill()
        asked = another(leader, gone)
        eventually(partial(in_sync, cluster, asked), sorted({leader, asked}), SECONDS_MAX)
        plain = run(cluster, asked, "status").stdout.splitlines()
        assert next(line for line in plain if line.startswith(gone)).split()[2] == "no"
