"""A backup of a cluster, made under load, and a new cluster of three that is started from it.

The copy has everything that was confirmed and declared before the call, and of what came during it a first part. A
cluster that exists already takes no restored directory, which stays as it is.
"""

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from support.broker import BrokerError, penstock_command
from support.serving_cluster import NAMES, SECONDS_MAX, ServingCluster, until_done
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
QUEUE, STREAM, VHOST = "jobs", "events", "shop"
LATER = [f"later {number}".encode() for number in range(5)]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [penstock_command(), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


class Publishing(threading.Thread):
    """Publishes numbers in their order, one after the other, until it is stopped."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self.confirmed = 0
        self._uri = uri
        self._is_over = threading.Event()

    def run(self) -> None:
        with penstock.connect(self._uri) as connection:
            while not self._is_over.is_set():
                connection.publish(str(self.confirmed).encode(), routing_key=QUEUE)
                self.confirmed += 1

    def stop(self) -> None:
        self._is_over.set()
        self.join()


def fill(cluster: ServingCluster) -> None:
    """Make a user, two virtual hosts, a queue in each, and a stream with messages."""
    with penstock.connect(cluster.brokers["mq-0"].uri()) as connection:
        connection.admin.create_vhost(VHOST)
        connection.admin.put_user("alice", password="secret of alice", tags=["monitoring"])
        connection.admin.set_permission("alice", VHOST, configure=".*", write=".*", read=".*")
        connection.admin.set_permission("guest", VHOST, configure=".*", write=".*", read=".*")
        connection.declare_queue(QUEUE)
    until_done(lambda: fill_shop(cluster))


def fill_shop(cluster: ServingCluster) -> None:
    with penstock.connect(cluster.brokers["mq-0"].uri(VHOST)) as connection:
        connection.declare_stream(STREAM)
        connection.stream(STREAM).publish(b"first")


def bodies(cluster: ServingCluster, at: str, vhost: str = "", queue: str = QUEUE) -> Iterator[bytes]:
    with penstock.connect(cluster.brokers[at].uri(vhost)) as connection:
        while (message := connection.get(queue)) is not None:
            yield message.body
            message.ack()


def back_up(cluster: ServingCluster, tmp_path: Path) -> tuple[int, Path, Path]:
    """Return how many messages were confirmed before the backups, an archive and a directory."""
    archive, directory = tmp_path / "monday.tar", tmp_path / "monday"
    leader = cluster.leader()
    asked = next(name for name in NAMES if name != leader)
    publishing = Publishing(cluster.brokers[leader].uri())
    publishing.start()
    try:
        eventually(lambda: publishing.confirmed > 200, True, SECONDS_MAX)
        confirmed = publishing.confirmed
        done = run("backup", "download", archive, "--uri", cluster.brokers[asked].uri(), "--output", "json")
        assert (done.returncode, json.loads(done.stdout)["vhosts"]) == (0, 2), done.stderr
        done = run("backup", "write", directory, "--uri", cluster.brokers[asked].uri())
        assert done.returncode == 0, done.stderr
    finally:
        publishing.stop()
    return confirmed, archive, directory


def restored(backup: Path, cluster: ServingCluster, name: str) -> None:
    done = run("restore", backup, "--data-dir", cluster.brokers[name].data_dir)
    assert done.returncode == 0, done.stderr
    assert "of cluster 'test' restored" in done.stdout


def new_cluster(root: Path) -> ServingCluster:
    root.mkdir()
    return ServingCluster(root, shards=3)


def test_a_new_cluster_is_started_from_a_backup(tmp_path: Path) -> None:
    with new_cluster(tmp_path / "old") as old:
        fill(old)
        old.until_all_in_sync()
        confirmed, archive, directory = back_up(old, tmp_path)
    cluster = new_cluster(tmp_path / "new")
    try:
        check_start(cluster, archive, confirmed)
        check_refused(cluster, directory)
    finally:
        cluster.kill_all()


def check_start(cluster: ServingCluster, backup: Path, confirmed: int) -> None:
    restored(backup, cluster, "mq-1")
    cluster.brokers["mq-1"].start()
    assert not (cluster.brokers["mq-1"].data_dir / "restored.json").exists()
    for name in ("mq-0", "mq-2"):
        cluster.brokers[name].start()
    cluster.until_all_in_sync()

    cluster.brokers["mq-1"].kill()
    leader = cluster.leader(among=("mq-0", "mq-2"))
    found = list(bodies(cluster, leader))
    assert len(found) >= confirmed
    assert found == [str(number).encode() for number in range(len(found))]
    with penstock.connect(cluster.brokers[leader].uri()) as connection:
        connection.declare_queue("later")
        for body in LATER:
            connection.publish(body, routing_key="later")
    assert list(bodies(cluster, leader, queue="later")) == LATER
    until_done(lambda: check_shop(cluster))


def check_shop(cluster: ServingCluster) -> None:
    """Check that the user and the stream are there, and that no offset of before names another message."""
    uri = cluster.brokers["mq-0"].uri(VHOST, "alice", "secret%20of%20alice")
    with penstock.connect(uri) as connection:
        stream = connection.stream(STREAM)
        stream.publish(b"second")
        read = [(each.offset, each.body) for each in stream.read("first", until="next")]
    assert [body for _, body in read] == [b"first", b"second"]
    assert read[1][0] > read[0][0] + 2**31


def check_refused(cluster: ServingCluster, backup: Path) -> None:
    """Check that a cluster that exists takes no restored directory, which stays as it is."""
    broker = cluster.brokers["mq-1"]
    broker.data_dir = broker.data_dir.with_name("again")
    restored(backup, cluster, "mq-1")
    with pytest.raises(BrokerError, match="the coordinator has a record of shard 'meta'"):
        broker.start()
    assert (broker.data_dir / "restored.json").exists()
