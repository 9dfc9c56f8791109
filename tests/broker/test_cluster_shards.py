"""A virtual host with several shards in a cluster: one broker leads all of them.

What was confirmed is there after its death, in all queues that it went to, also in a shard that was added.
"""

from functools import partial
from itertools import islice
from pathlib import Path

import pytest

import penstock
from support.serving_cluster import NAMES, SECONDS_MAX, ServingCluster, until_done
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
SHARDS, COUNT = 3, 300
QUEUES = [f"orders{number}" for number in range(5)]
"""The numbers of queues choose their shards: the first two are in the first two, the last one is in the third."""


def leaders(cluster: ServingCluster, at: str, vhost: str) -> set[tuple[str, bool]]:
    """Return who leads the shards of a virtual host, and whether that broker has answered."""
    with penstock.connect(cluster.brokers[at].uri()) as connection:
        found = [shard for shard in connection.admin.cluster_status().shards if shard.vhost == vhost]
    assert len(found) == SHARDS
    return {(shard.leader, shard.led) for shard in found}


def declare(client: penstock.Connection, *queues: str) -> None:
    for queue in queues:
        client.declare_queue(queue)
        client.bind_queue(queue, "all", "")


def test_a_message_for_queues_in_three_shards_is_there_when_their_leader_was_killed(tmp_path: Path) -> None:
    with ServingCluster(tmp_path, shards=1) as cluster:
        with penstock.connect(cluster.brokers["mq-1"].uri()) as root:
            root.admin.create_vhost("shop", SHARDS - 1)
            root.admin.set_permission("guest", "shop", configure=".*", write=".*", read=".*")
        with penstock.connect(cluster.brokers["mq-1"].uri("shop")) as client:
            client.declare_exchange("all", "fanout")
            declare(client, *QUEUES[:2])
            client.publish(b"before", exchange="all")
            with penstock.connect(cluster.brokers["mq-2"].uri()) as root:
                root.admin.set_vhost_shards("shop", SHARDS)
            declare(client, *QUEUES[2:])
            assert [client.get(queue, auto_ack=True) is not None for queue in QUEUES[:2]] == [True, True]
        cluster.until_all_in_sync()
        killed = cluster.leader("shop")
        eventually(partial(leaders, cluster, "mq-0", "shop"), {(killed, True)}, SECONDS_MAX)
        with penstock.connect(cluster.brokers[killed].uri("shop")) as publisher:
            publisher.publish_many([str(number).encode() for number in range(COUNT)], exchange="all")
            assert [publisher.get(queue, auto_ack=True) is not None for queue in QUEUES] == [True] * 5
            publisher.publish(b"last", exchange="all")

        cluster.brokers[killed].kill()

        others = tuple(name for name in NAMES if name != killed)
        leader = cluster.leader("shop", among=others)
        eventually(partial(leaders, cluster, others[0], "shop"), {(leader, True)}, SECONDS_MAX)
        expected = [*(str(number).encode() for number in range(1, COUNT)), b"last", b"after"]
        with penstock.connect(cluster.brokers[leader].uri("shop")) as consumer:
            until_done(lambda: consumer.publish(b"after", exchange="all"))
            for queue in QUEUES:
                messages = islice(consumer.consume(queue, prefetch=1_000), len(expected))
                assert [message.body for message in messages] == expected
        cluster.brokers[killed].start()
        cluster.until_all_in_sync()
