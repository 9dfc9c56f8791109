"""An operator of a cluster: its status at every broker, and leaders that move while clients publish and consume.

Nothing that was confirmed is lost.
"""

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

import penstock
from penstock.client.cluster_records import MovedLeader
from support.cluster_operator import done, in_sync, leader_of, load, run, shards, until_more
from support.serving_cluster import NAMES, SECONDS_MAX, ServingCluster
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def move(cluster: ServingCluster, at: str, to: str) -> MovedLeader:
    with penstock.connect(cluster.brokers[at].uri()) as connection:
        return connection.admin.move_leader("/", to)


def moves(cluster: ServingCluster, vhost: str, to: str) -> bool:
    """Return whether a leader has moved, which a replica that is not in sync yet prevents."""
    return run(cluster, to, "move", vhost, "--to", to).returncode == 0


def drain(cluster: ServingCluster, at: str, broker: str, *, draining: bool = True) -> bool:
    with penstock.connect(cluster.brokers[at].uri()) as connection:
        return connection.admin.set_draining(broker, draining)


def another(*names: str) -> str:
    return next(name for name in NAMES if name not in names)


def seen(
    cluster: ServingCluster, at: str
) -> tuple[set[tuple[bool, bool, bool]], str, bool, int, dict[str, int | None]]:
    """Return what a broker shows of the others, and of the leader of `/` and its replicas."""
    with penstock.connect(cluster.brokers[at].uri()) as connection:
        found = connection.admin.cluster_status()
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


def test_leaders_move_under_load_and_nothing_that_was_confirmed_is_lost(tmp_path: Path) -> None:
    with ServingCluster(tmp_path, shards=3) as cluster:
        cluster.until_all_in_sync()
        with load(cluster) as publisher:
            for _ in range(2):
                until_more(publisher)
                leader, before = leader_of(cluster), shards(cluster, NAMES[0])["/"]
                to = another(leader)
                moved = done(cluster, another(leader, to), "move", "/", "--to", to)
                assert (moved["broker"], moved["moved"]) == (to, True)
                assert moved["epoch"] > before.epoch
            assert not move(cluster, NAMES[0], to).moved
            until_more(publisher)

            led = {shard.leader for shard in shards(cluster, to).values()}
            for drained in sorted(led):
                assert done(cluster, another(drained), "drain", drained)["changed"]
                assert leader_of(cluster) != drained
                until_more(publisher)
                with pytest.raises(penstock.PreconditionFailedError, match=f"broker '{drained}' is drained"):
                    move(cluster, drained, drained)
                assert drain(cluster, drained, drained, draining=False)

            unknown = run(cluster, to, "move", "/", "--to", "mq-7")
            assert (unknown.returncode, "broker 'mq-7' not found" in unknown.stderr) == (1, True)
            leader = leader_of(cluster)
            gone = another(leader)
            cluster.brokers[gone].kill()
            eventually(lambda: gone in in_sync(cluster, leader), False, SECONDS_MAX)
            with pytest.raises(penstock.PreconditionFailedError, match=r"not in sync|is not alive"):
                move(cluster, leader, gone)
            until_more(publisher)


def test_a_broker_that_is_drained_leads_nothing_after_its_restart_and_the_death_of_a_leader(tmp_path: Path) -> None:
    with ServingCluster(tmp_path) as cluster:
        cluster.until_all_in_sync()
        drained = cluster.leader()
        done(cluster, drained, "drain", drained)
        cluster.brokers[drained].kill()
        cluster.brokers[drained].start()
        cluster.until_all_in_sync()
        killed = cluster.leader()
        assert killed != drained

        cluster.brokers[killed].kill()

        last = another(drained, killed)
        eventually(lambda: shards(cluster, last)["/"].leader, last, SECONDS_MAX)
        assert done(cluster, last, "drain", killed, "--timeout", "0")["changed"]
        with pytest.raises(penstock.PreconditionFailedError, match="is the last one that is not drained"):
            drain(cluster, last, last)


def test_leaders_are_spread_over_the_brokers_that_are_not_drained(tmp_path: Path) -> None:
    with ServingCluster(tmp_path) as cluster:
        cluster.until_all_in_sync()
        first = cluster.leader()
        with penstock.connect(cluster.brokers[first].uri()) as connection:
            for number in range(5):
                connection.admin.create_vhost(f"shop-{number}")
        vhosts = ["/", *(f"shop-{number}" for number in range(5))]
        eventually(lambda: all(shard.led for shard in shards(cluster, first).values()), True, SECONDS_MAX)
        cluster.until_all_in_sync()
        for vhost in vhosts:
            eventually(partial(moves, cluster, vhost, first), True, SECONDS_MAX)

        planned = run(cluster, another(first), "rebalance", "--dry-run")
        assert (planned.returncode, len(planned.stdout.splitlines())) == (0, 4), planned
        assert {shards(cluster, first)[vhost].leader for vhost in vhosts} == {first}
        moved = run(cluster, another(first), "rebalance")
        assert (moved.returncode, moved.stdout) == (0, planned.stdout), moved

        def counts() -> list[int]:
            leaders = Counter(shards(cluster, first)[vhost].leader for vhost in vhosts)
            return [leaders[name] for name in NAMES]

        eventually(counts, [2, 2, 2], SECONDS_MAX)
        again = run(cluster, first, "rebalance")
        assert (again.returncode, again.stdout, "as evenly as" in again.stderr) == (0, "", True), again
