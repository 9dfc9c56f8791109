"""A cluster of three brokers in processes of their own.

Everything that is made at one is there at the others, and a leader's death loses nothing that was confirmed.
"""

from itertools import islice
from pathlib import Path

import pytest

import penstock
from penstock.storage.cluster_json import belong_to
from support.broker import BrokerError
from support.plain_client import FOLLOWS, GUEST, plain_client, refusal_of
from support.serving_cluster import NAMES, SECONDS_MAX, ServingCluster, until_done
from support.waiting import eventually

pytestmark = pytest.mark.slow
VHOSTS_MAX, QUEUES = 8, 20


def test_users_virtual_hosts_and_queues_of_one_broker_are_on_the_others(tmp_path: Path) -> None:
    with ServingCluster(tmp_path) as cluster:
        first, second, third = cluster.brokers.values()
        with penstock.connect(first.uri()) as root:
            root.admin.create_vhost("shop")
            root.admin.put_user("walter", "secret", tags=["administrator"])
            for user in ("walter", "guest"):
                root.admin.set_permission(user, "shop", configure=".*", write=".*", read=".*")
        with penstock.connect(second.uri("shop", "walter", "secret")) as other:
            other.declare_exchange("web", "topic")
            other.declare_queue("orders")
            other.bind_queue("orders", "web", "order.#")
        with penstock.connect(third.uri("shop", "walter", "secret")) as last:
            last.declare_queue("orders")
            assert [queue.name for queue in last.admin.list_queues()] == ["orders"]

        leader = cluster.brokers[cluster.leader("shop")]
        with penstock.connect(leader.uri("shop", "walter", "secret")) as publisher:
            publisher.publish(b"one", exchange="web", routing_key="order.new")
            assert [message.body for message in islice(publisher.consume("orders"), 1)] == [b"one"]


def test_a_broker_that_does_not_lead_names_the_one_that_does_to_clients_that_follow(tmp_path: Path) -> None:
    with ServingCluster(tmp_path) as cluster:
        with penstock.connect(cluster.brokers["mq-0"].uri()) as root:
            root.declare_queue("orders")
        leader = cluster.leader()
        other = next(name for name in NAMES if name != leader)

        staying = cluster.brokers[other].uri() + "?follow=false"
        with plain_client(cluster.brokers[other].address, (*GUEST, FOLLOWS)) as client:
            refused = refusal_of(lambda: client.get("orders"))
        assert refused.detail.reason == "NOT_LEADER"
        assert refused.detail.data["leader"] == leader
        assert cluster.brokers[leader].address in str(refused)

        with penstock.connect(staying) as client:
            client.publish(b"one", routing_key="orders")
            assert [queue.ready_count for queue in client.admin.list_queues()] == [1], "the leader counts them"


def test_a_message_reaches_the_queue_that_another_broker_has_just_bound(tmp_path: Path) -> None:
    with ServingCluster(tmp_path) as cluster:
        # The broker that leads the metadata is the first to know of a binding, so another one has to lead the messages.
        deciding = cluster.leader_of_metadata()
        with penstock.connect(cluster.brokers[deciding].uri()) as root:
            for number in range(VHOSTS_MAX):
                vhost = f"shop{number}"
                root.admin.create_vhost(vhost)
                root.admin.set_permission("guest", vhost, configure=".*", write=".*", read=".*")
                serving = cluster.leader(vhost)
                if serving != deciding:
                    break
        assert serving != deciding

        declaring, publishing = (cluster.brokers[name].uri(vhost) for name in (deciding, serving))
        with penstock.connect(declaring) as declarer, penstock.connect(publishing) as publisher:
            declarer.declare_exchange("web", "topic")
            names = [f"orders{number}" for number in range(QUEUES)]
            for name in names:
                declarer.declare_queue(name)
                declarer.bind_queue(name, "web", name)
                publisher.publish(b"one", exchange="web", routing_key=name)
            assert [name for name in names if publisher.get(name, auto_ack=True) is None] == []


def test_another_broker_serves_all_that_was_confirmed_when_the_leader_is_killed(tmp_path: Path) -> None:
    with ServingCluster(tmp_path) as cluster:
        with penstock.connect(cluster.brokers["mq-1"].uri()) as root:
            root.declare_queue("orders")
        cluster.until_all_in_sync()
        killed = cluster.leader()
        with penstock.connect(cluster.brokers[killed].uri()) as publisher:
            publisher.publish_many([str(number).encode() for number in range(999)], routing_key="orders")
            publisher.get("orders", auto_ack=True)
            publisher.publish(b"999", routing_key="orders")  # its confirm is also one of the acknowledgement before it

        cluster.brokers[killed].kill()

        others = tuple(name for name in NAMES if name != killed)
        leader = cluster.brokers[cluster.leader(among=others)]
        with penstock.connect(leader.uri()) as consumer:
            until_done(lambda: consumer.declare_queue("after"))
            until_done(lambda: consumer.publish(b"1000", routing_key="orders"))
            arrived = [message.body for message in islice(consumer.consume("orders", prefetch=1_000), 1_000)]
        assert arrived == [str(number).encode() for number in range(1, 1_001)]

        cluster.brokers[killed].start()
        cluster.until_all_in_sync()
        with penstock.connect(cluster.brokers[killed].uri()) as back:
            assert [queue.name for queue in back.admin.list_queues()] == ["after", "orders"]


def test_a_broker_that_cannot_store_the_metadata_leaves_the_lead_to_another_one(tmp_path: Path) -> None:
    with ServingCluster(tmp_path) as cluster:
        failing = cluster.leader()
        others = tuple(name for name in NAMES if name != failing)
        users = cluster.brokers[failing].data_dir / "users.json"
        users.unlink()
        (users / "in the way").mkdir(parents=True)

        with penstock.connect(cluster.brokers[others[0]].uri()) as root:
            until_done(lambda: root.admin.put_user("walter", "secret"))

        eventually(lambda: cluster.brokers[failing].exit_status, 1, SECONDS_MAX)
        assert "the metadata of the cluster is not applied any more" in cluster.brokers[failing].log
        assert cluster.leader(among=others) in others


def test_a_broker_with_the_disk_of_another_one_does_not_start(tmp_path: Path) -> None:
    cluster = ServingCluster(tmp_path)
    started = cluster.brokers["mq-0"]
    started.data_dir.mkdir()
    belong_to(started.data_dir, "test", "mq-1")

    with pytest.raises(BrokerError, match=r"cluster\.json' is not of broker 'mq-0'"):
        started.start()


def test_a_replica_whose_directory_was_moved_away_begins_anew(tmp_path: Path) -> None:
    """As an operator is told to do for a corrupt log."""
    with ServingCluster(tmp_path) as cluster:
        with penstock.connect(cluster.brokers["mq-0"].uri()) as root:
            root.declare_queue("orders")
        cluster.until_all_in_sync()
        leader = cluster.leader()
        moved = cluster.brokers[next(name for name in NAMES if name != leader)]
        with penstock.connect(cluster.brokers[leader].uri()) as publisher:
            publisher.publish_many([b"kept"] * 100, routing_key="orders")
        moved.kill()
        for number, path in enumerate(moved.data_dir.glob("*/definitions.amqp")):
            path.parent.rename(tmp_path / f"moved-{number}")

        moved.start()

        cluster.until_all_in_sync()
        with penstock.connect(moved.uri()) as back:
            assert [queue.name for queue in back.admin.list_queues()] == ["orders"]


def test_a_cluster_goes_on_after_all_brokers_stopped(tmp_path: Path) -> None:
    with ServingCluster(tmp_path) as cluster:
        with penstock.connect(cluster.brokers["mq-0"].uri()) as root:
            root.declare_queue("orders")
            root.admin.create_vhost("gone")
            root.admin.delete_vhost("gone")
            root.admin.create_vhost("gone")
        with penstock.connect(cluster.brokers[cluster.leader()].uri()) as publisher:
            publisher.publish(b"kept", routing_key="orders")
        for broker in cluster.brokers.values():
            assert broker.stop() == 0

        cluster.start_all()

        with penstock.connect(cluster.brokers[cluster.leader()].uri()) as consumer:
            got = consumer.get("orders", auto_ack=True)
            assert got is not None
            assert got.body == b"kept"
            assert {vhost.name for vhost in consumer.admin.list_vhosts()} == {"/", "gone"}
