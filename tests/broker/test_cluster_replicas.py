"""Replicas that move between the brokers of a cluster while clients publish and consume.

Nothing that was confirmed is lost, and a broker that a replica has left keeps nothing of its log.
"""

from pathlib import Path

import pytest

import penstock
from support.cluster_operator import done, in_sync, leader_of, load, run, shards, until_more
from support.serving_cluster import SECONDS_MAX, ServingCluster
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
FOUR = ("mq-0", "mq-1", "mq-2", "mq-3")


def log_files(cluster: ServingCluster, broker: str) -> set[str]:
    """Return the kinds of files that a broker has of the log of `/`."""
    (definitions,) = cluster.brokers[broker].data_dir.glob("*/definitions.amqp")
    names = (file.name for file in definitions.parent.iterdir())
    return {name.partition(".")[0] for name in names if name.startswith(("msgs", "replica", "checkpoint", "synced"))}


def move(cluster: ServingCluster, at: str, source: str, to: str) -> None:
    """Ask for a move, and do not wait for it."""
    with penstock.connect(cluster.brokers[at].uri()) as connection:
        assert connection.admin.move_replica("/", source, to).changed


def brokers_of(cluster: ServingCluster, at: str) -> list[str]:
    return sorted(replica.broker for replica in shards(cluster, at)["/"].replicas)


def test_replicas_move_under_load_and_leave_nothing_behind(tmp_path: Path) -> None:
    with ServingCluster(tmp_path, names=FOUR) as cluster:
        cluster.until_all_in_sync()
        leader = leader_of(cluster)
        (outside,) = set(FOUR) - set(brokers_of(cluster, leader))
        follower = next(name for name in FOUR if name not in (leader, outside))
        assert log_files(cluster, outside) == set()
        with load(cluster) as publisher:
            until_more(publisher)
            moved = done(cluster, follower, "move", "/", "--replica", follower, "--to", outside)
            assert (moved["placed"], moved["changed"]) == (sorted({*FOUR} - {follower}), True)
            assert in_sync(cluster, outside) == brokers_of(cluster, leader) == moved["placed"]
            until_more(publisher)
            assert not done(cluster, leader, "move", "/", "--replica", follower, "--to", outside)["changed"]
            eventually(lambda: log_files(cluster, follower), set(), SECONDS_MAX)

            move(cluster, outside, leader, follower)
            eventually(lambda: brokers_of(cluster, outside), sorted({*FOUR} - {leader}), SECONDS_MAX)
            assert leader_of(cluster) != leader
            eventually(lambda: log_files(cluster, leader), set(), SECONDS_MAX)

            # The broker that is to get a replica dies on the way, and then the one that is to lose it.
            move(cluster, outside, follower, leader)
            cluster.brokers[leader].kill()
            until_more(publisher)
            shown = run(cluster, outside, "status")
            assert (shown.returncode, "goes when the others are in sync" in shown.stdout) == (0, True), shown
            cluster.brokers[follower].kill()
            cluster.brokers[leader].start()
            eventually(lambda: in_sync(cluster, leader), sorted({*FOUR} - {follower}), SECONDS_MAX)
            until_more(publisher)
            assert "replica" in log_files(cluster, follower)
            cluster.brokers[follower].start()
            eventually(lambda: log_files(cluster, follower), set(), SECONDS_MAX)

            last, *others = in_sync(cluster, leader)
            for broker in others:
                move(cluster, last, broker, "")
            eventually(lambda: in_sync(cluster, last), [last], SECONDS_MAX)
            assert (leader_of(cluster), shards(cluster, last)["/"].min_in_sync) == (last, 1)
            only = run(cluster, last, "shrink", "/", "--from", last)
            assert (only.returncode, "its only replica" in only.stderr) == (1, True), only
            until_more(publisher)
            done(cluster, last, "grow", "/", "--to", others[0])
            eventually(lambda: shards(cluster, last)["/"].min_in_sync, 2, SECONDS_MAX)
