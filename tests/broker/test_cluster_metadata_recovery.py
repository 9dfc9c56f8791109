"""An operator recovers the metadata from a broker that lags, because the disks of those in sync are lost.

What that broker knew is there, and what it did not know is gone. A broker that has more, and was cut off meanwhile,
ends by itself; its next start sets its metadata aside, and the log of a virtual host that is not named any more.
"""

import json
import os
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.storage import directory_name
from penstock.storage.setting_aside import SET_ASIDE
from support.broker import Broker, penstock_command
from support.serving_cluster import NAMES, SECONDS_MAX, ServingCluster, until_done
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
QUEUE, SHARDS = "jobs", 3
KEPT = [f"kept {number}".encode() for number in range(10)]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [penstock_command(), "cluster", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * SECONDS_MAX, check=False)


def recover(cluster: ServingCluster, at: str, broker: str, *flags: str) -> subprocess.CompletedProcess[str]:
    directory = cluster.brokers[at].data_dir
    return run("recover", "--metadata", "--from", broker, "--data-dir", directory, *flags)


def recover_vhost(cluster: ServingCluster, broker: str, vhost: str) -> subprocess.CompletedProcess[str]:
    uri = cluster.brokers[broker].uri()
    return run("recover", vhost, "--from", broker, "--accept-loss", "--uri", uri)


def in_sync(cluster: ServingCluster) -> list[str]:
    record = json.loads((cluster.coordinator / "shard-meta.json").read_text())["record"]
    return sorted(record["replicas"][replica] for replica in record["in_sync"])


def are_in_sync(cluster: ServingCluster) -> bool:
    """Return whether the shards that are not lost have all their replicas in sync."""
    names = ("shard-meta", f"shard-{directory_name('/')}*")
    records = [
        json.loads(path.read_text())["record"] for name in names for path in cluster.coordinator.glob(f"{name}.json")
    ]
    return [len(record["in_sync"]) for record in records] == [len(NAMES)] * (1 + SHARDS)


def lag(cluster: ServingCluster) -> tuple[str, str, str]:
    """Return two brokers whose metadata is in sync, and a stopped one that lacks a part of it."""
    cluster.until_all_in_sync()
    left = next(name for name in NAMES if name not in (cluster.leader_of_metadata(), cluster.leader()))
    lost, cut_off = (name for name in NAMES if name != left)
    with penstock.connect(cluster.brokers[cluster.leader()].uri()) as connection:
        connection.admin.put_user("alice", password="secret", tags=["administrator"])
        connection.admin.set_permission("alice", "/", ".*", ".*", ".*")
        connection.declare_queue(QUEUE)
        for body in KEPT:
            connection.publish(body, routing_key=QUEUE)
    cluster.until_all_in_sync()
    cluster.brokers[left].stop()
    eventually(lambda: in_sync(cluster), sorted([lost, cut_off]), SECONDS_MAX)
    with penstock.connect(cluster.brokers[lost].uri()) as connection:
        connection.admin.put_user("bob", password="secret")
        connection.admin.delete_user("alice")
        connection.admin.create_vhost("late", SHARDS)
        connection.admin.set_permission("guest", "late", ".*", ".*", ".*")
    until_done(lambda: fill_late(cluster, lost))
    return lost, cut_off, left


def fill_late(cluster: ServingCluster, at: str) -> None:
    with penstock.connect(cluster.brokers[at].uri("late")) as connection:
        connection.declare_queue(QUEUE)
        connection.publish(b"lost", routing_key=QUEUE)


def pause(broker: Broker, number: signal.Signals) -> None:
    os.kill(broker.pid, number)


def consume(cluster: ServingCluster, among: tuple[str, ...]) -> list[bytes]:
    leader = cluster.brokers[cluster.leader(among=among)]
    with penstock.connect(leader.uri(user="alice", password="secret")) as connection:
        return [message.body for message in iter(lambda: connection.get(QUEUE, auto_ack=True), None)]


def users(cluster: ServingCluster, at: str) -> list[str]:
    with penstock.connect(cluster.brokers[at].uri()) as connection:
        return sorted(user.name for user in connection.admin.list_users())


def recovered(result: subprocess.CompletedProcess[str]) -> Any:
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_the_metadata_goes_on_from_a_broker_that_lagged(tmp_path: Path) -> None:
    with ServingCluster(tmp_path, shards=SHARDS) as cluster, ThreadPoolExecutor() as threads:
        lost, cut_off, left = lag(cluster)
        refused = recover(cluster, lost, cut_off, "--accept-loss")
        assert (refused.returncode, "is led by broker" in refused.stderr) == (1, True), refused
        cluster.brokers[lost].kill()
        pause(cluster.brokers[cut_off], signal.SIGSTOP)
        shutil.rmtree(cluster.brokers[lost].data_dir)
        starting = [threads.submit(cluster.brokers[name].start) for name in (lost, left)]

        # The broker that is cut off counts as alive for ten seconds.
        eventually(lambda: recover(cluster, lost, left).returncode, 0, SECONDS_MAX)
        eventually(lambda: recover(cluster, left, left).returncode, 0, SECONDS_MAX)
        shown = recover(cluster, left, left)
        assert ("nothing was changed" in shown.stderr, "no answer" in shown.stdout) == (True, True), shown
        unknown = recover(cluster, left, "mq-7", "--accept-loss")
        assert "broker 'mq-7' not found" in unknown.stderr
        blank = recover(cluster, left, lost, "--accept-loss")
        assert f"has more at broker '{left}'" in blank.stderr, blank
        assert not any(each.done() for each in starting)

        done = recovered(recover(cluster, lost, left, "--accept-loss", "--output", "json"))
        assert (done["recovered"], done["epoch"] > 0) == (True, True)
        for each in starting:
            each.result(SECONDS_MAX)
        again = recover(cluster, left, left, "--accept-loss")
        assert "as before" in again.stdout or "is led by broker" in again.stderr, again
        assert users(cluster, lost) == ["alice", "guest"]
        eventually(lambda: recover_vhost(cluster, left, "/").returncode, 0, SECONDS_MAX)
        assert consume(cluster, (lost, left)) == KEPT

        pause(cluster.brokers[cut_off], signal.SIGCONT)
        eventually(lambda: cluster.brokers[cut_off].is_running, False, SECONDS_MAX)
        assert cluster.brokers[cut_off].exit_status == 1
        cluster.brokers[cut_off].start()
        check_set_aside(cluster.brokers[cut_off])
        eventually(lambda: are_in_sync(cluster), True, SECONDS_MAX)
        assert users(cluster, cut_off) == ["alice", "guest"]
        check_made_anew(cluster, cut_off)


def check_set_aside(broker: Broker) -> None:
    """Check that what is lost is still on the disk of the broker that had it."""
    aside = broker.data_dir / SET_ASIDE
    (state,) = aside.glob("meta.*.state")
    assert "bob" in (state / "users.json").read_text()
    assert any(aside.glob("meta.*/msgs.*"))
    for log in ("", "-1", "-2"):
        assert any(aside.glob(f"{directory_name('late')}{log}.*/msgs.*"))
    assert "metadata set aside" in broker.log


def check_made_anew(cluster: ServingCluster, at: str) -> None:
    """Check that a virtual host of the name of a lost one is another one, without its messages."""
    with penstock.connect(cluster.brokers[at].uri()) as connection:
        assert connection.admin.create_vhost("late")
        connection.admin.set_permission("guest", "late", ".*", ".*", ".*")
    leader = cluster.leader("late")
    with penstock.connect(cluster.brokers[leader].uri("late")) as connection:
        connection.declare_queue(QUEUE)
        assert connection.get(QUEUE) is None
