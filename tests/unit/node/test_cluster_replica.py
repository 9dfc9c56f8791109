"""A broker's replica of a virtual host: it does not go on leading with queues that lack a change."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.cluster.host import ClusterHost, ReplicaOptions
from penstock.cluster.record import BrokerName
from penstock.metadata import VhostTopology
from penstock.metadata.effects import DropQueue
from penstock.model.errors import NotLedError, StorageError, Thing
from penstock.model.names import QueueId, QueueName, VhostName
from penstock.native import Engine, ReplicaRole
from penstock.node.in_cluster.metadata import Metadata
from penstock.node.in_cluster.owner import ClusterOwner
from penstock.node.in_cluster.replica import ShardPlace, VhostReplica
from support.vhost_fakes import FakeShard

ME, OTHER, NAME = BrokerName("mq-0"), BrokerName("mq-1"), VhostName("shop")
SECONDS_MAX = 60
"""Only ends a test that would otherwise never end."""


class FailingShard(FakeShard):
    """Its disk takes no deletion of a queue."""

    def delete_queue(self, *_: Any, **__: Any) -> int:
        raise StorageError(Thing("vhost", NAME), "is not stored", "free some space")


class FakeReplica:
    shard = b"shard"

    def __init__(self) -> None:
        self.role = ReplicaRole(epoch=3, appends=True)
        self.changed = asyncio.Event()
        self.led_count = 0

    def change(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    async def lead(self, engine: Engine, vhost: VhostName, epoch: int) -> FakeShard:
        del engine
        assert (vhost, epoch) == (NAME, 3)
        self.led_count += 1
        return FailingShard()


class FakeHost:
    """Lets the replica lead until it is asked to hand over."""

    def __init__(self) -> None:
        self.replica = FakeReplica()
        self.has_resigned = asyncio.Event()

    async def open(self, *_: Any) -> FakeReplica:
        return self.replica

    async def resign(self, replica: FakeReplica) -> None:
        assert replica is self.replica
        self.has_resigned.set()

    def leader_name(self, shard: bytes) -> BrokerName:
        assert shard == self.replica.shard
        return ME


class FakeMetadata:
    me = ME

    async def latest(self) -> None:
        """There is nothing new."""


def test_another_broker_leads_when_the_queues_of_this_one_take_no_change(tmp_path: Path) -> None:
    async def scenario() -> None:
        host, metadata = FakeHost(), cast(Metadata, FakeMetadata())
        place = ShardPlace(NAME, "shop.1", tmp_path, (ME, OTHER))
        replica = VhostReplica(cast(ClusterHost, host), cast(Engine, None), ReplicaOptions(), place)
        replica.owner = ClusterOwner(VhostTopology(NAME), metadata, replica)
        leads = asyncio.Event()
        running = asyncio.ensure_future(replica.run(metadata, lambda _: leads.set()))
        await leads.wait()
        assert isinstance(replica.owner.shard, FailingShard)

        replica.take([DropQueue(QueueId(7), QueueName("orders"))])

        await host.has_resigned.wait()
        assert replica.fault == "vhost 'shop' is not stored; free some space"
        with pytest.raises(NotLedError):
            _ = replica.owner.shard
        host.replica.change()
        await asyncio.sleep(0)
        assert host.replica.led_count == 1, "the same term is not begun again"
        running.cancel()

    asyncio.run(asyncio.wait_for(scenario(), SECONDS_MAX))
