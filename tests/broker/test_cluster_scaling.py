"""A cluster that grows from one broker to three and five and shrinks to three while clients publish and consume.

Nothing that was confirmed is lost, and the brokers that are left go on without those that were removed.
"""

import json
from pathlib import Path

import pytest

import penstock
from support.cluster_operator import done, in_sync, load, run, shards, until_more
from support.serving_cluster import SECONDS_MAX, ServingCluster, minimum_of
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
FIVE = [f"mq-{number}" for number in range(5)]


def metadata(cluster: ServingCluster) -> tuple[list[str], bool]:
    """Return the brokers with a replica of the metadata, and whether all are in sync, and as many have to be."""
    record = json.loads((cluster.coordinator / "shard-meta.json").read_text())["record"]
    is_in_sync = len(record["in_sync"]) == len(record["replicas"]) and record["min_in_sync"] == minimum_of(record)
    return sorted(record["replicas"].values()), is_in_sync


def join(cluster: ServingCluster, at: str, name: str) -> None:
    """Add a broker, and start it; return when it serves."""
    assert done(cluster, at, "add", name, "--peers", cluster.peers_of(name))["added"]
    cluster.brokers[name].start()


def test_a_cluster_grows_to_three_and_five_brokers_and_shrinks_to_three(tmp_path: Path) -> None:
    with ServingCluster(tmp_path, names=FIVE[:1]) as cluster:
        for name in FIVE[1:]:
            cluster.add(name)
        with load(cluster) as publisher:
            until_more(publisher)
            join(cluster, "mq-0", "mq-1")
            join(cluster, "mq-1", "mq-2")
            done(cluster, "mq-0", "grow", "/", "--to", "mq-1")
            done(cluster, "mq-2", "grow", "/", "--to", "mq-2")
            until_more(publisher)
            eventually(lambda: metadata(cluster), (FIVE[:3], True), SECONDS_MAX)
            with penstock.connect(cluster.brokers["mq-2"].uri()) as connection:
                connection.admin.create_vhost("shop")
            eventually(lambda: placed_on(cluster, "shop", "mq-2"), FIVE[:3], SECONDS_MAX)
            kept = run(cluster, "mq-0", "remove", "mq-2")
            assert (kept.returncode, "no other broker" in kept.stderr) == (1, True), kept

            join(cluster, "mq-0", "mq-3")
            join(cluster, "mq-0", "mq-4")
            eventually(lambda: metadata(cluster), (FIVE, True), SECONDS_MAX)
            planned = run(cluster, "mq-4", "rebalance", "--replicas", "--dry-run")
            spread = run(cluster, "mq-4", "rebalance", "--replicas")
            assert (spread.returncode, len(spread.stdout.splitlines())) == (0, 2), spread
            assert spread.stdout == planned.stdout
            assert {*placed_on(cluster, "shop"), *placed_on(cluster, "/")} == set(FIVE)
            until_more(publisher)

            for name in FIVE[:2]:
                done(cluster, "mq-4", "remove", name)
                until_more(publisher)
            left = FIVE[2:]
            eventually(lambda: metadata(cluster), (left, True), SECONDS_MAX)
            eventually(lambda: [name for name in FIVE if cluster.brokers[name].is_running], left, SECONDS_MAX)
            assert in_sync(cluster, "mq-2") == placed_on(cluster, "shop") == left
            with penstock.connect(cluster.brokers["mq-3"].uri()) as connection:
                assert [broker.name for broker in connection.admin.cluster_status().brokers] == left
            until_more(publisher)


def placed_on(cluster: ServingCluster, vhost: str, at: str = "mq-4") -> list[str]:
    return sorted(replica.broker for replica in shards(cluster, at)[vhost].replicas if replica.in_sync)
