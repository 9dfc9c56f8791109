"""What the brokers of a cluster show an operator, over brokers in memory."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from penstock.cluster.calls import NotCarriedOutError
from penstock.cluster.host import ClusterHost
from penstock.cluster.meta.changes import BrokerPut
from penstock.cluster.meta.commands import Addresses
from penstock.cluster.meta.member import MetaMember
from penstock.cluster.record import BrokerName, Leader, ShardRecord
from penstock.model.errors import StorageError, Thing
from penstock.model.names import VhostName
from penstock.native import ReplicaPosition, ShardProgress
from penstock.node.in_cluster.cluster_view import ClusterView
from penstock.node.in_cluster.metadata import Metadata
from penstock.node.in_cluster.shards import ClusterShards

VHOST, SHARD = VhostName("shop"), "shop.0.1"
BROKERS = [BrokerName(f"mq-{number}") for number in range(4)]
REPLICAS = {f"{number:032x}": broker for number, broker in enumerate(BROKERS[:3])}
END = 1_000


class World:
    """Brokers whose shards have one record each. The last broker has no replica, and the one before is not in sync."""

    def __init__(self) -> None:
        self.leaders = {"meta": BROKERS[0], SHARD: BROKERS[0]}
        self.views: dict[BrokerName, ClusterShards] = {}
        self.hosts: dict[BrokerName, FakeHost] = {}
        self.gone: set[BrokerName] = set()
        for broker in BROKERS:
            host, member = FakeHost(self, broker), FakeMember(self)
            metadata = SimpleNamespace(me=broker, state=self)
            self.hosts[broker] = host
            self.views[broker] = ClusterShards(
                ClusterView(
                    "test",
                    cast(ClusterHost, host),
                    cast(MetaMember, member),
                    cast(Metadata, metadata),
                    lambda each: each not in self.gone,
                )
            )
            self.members = {**getattr(self, "members", {}), broker: member}

    vhosts: Mapping[VhostName, None] = {VHOST: None}

    @property
    def brokers(self) -> dict[BrokerName, BrokerPut]:
        return {each: BrokerPut(each, 1, 1, False, Addresses(f"{each}:5681")) for each in BROKERS}

    def shards_of(self, _: VhostName) -> list[str]:
        return [SHARD]

    def record(self, shard: str) -> ShardRecord:
        leader = self.leaders[shard]
        replica = next(replica for replica, broker in REPLICAS.items() if broker == leader)
        return ShardRecord(
            epoch=7,
            leader=Leader(broker=leader, replica=replica, boot=1),
            in_sync=tuple(sorted(REPLICAS)[:2]),
            replicas=dict(REPLICAS),
            min_in_sync=2,
        )


class FakeMember:
    def __init__(self, world: World) -> None:
        self._world = world
        self.handlers: dict[int, Any] = {}

    def answer(self, method: int, handler: Any) -> None:
        self.handlers[method] = handler

    async def call(self, broker: BrokerName, method: int, content: bytes) -> bytes:
        if broker in self._world.gone:
            raise NotCarriedOutError
        answer: bytes = await self._world.members[broker].handlers[method](content)
        return answer


class FakeHost:
    def __init__(self, world: World, me: BrokerName) -> None:
        self._world = world
        self._me = me
        self.has_coordinator = True

    def is_connected(self, broker: BrokerName) -> bool:
        return broker not in self._world.gone

    async def record_of(self, shard: str) -> ShardRecord:
        if not self.has_coordinator:
            raise StorageError(Thing("coordinator", "etcd"), "cannot be reached", "check it")
        return self._world.record(shard)

    def hosted(self, shard: str) -> Any:
        return SimpleNamespace(shard=shard, progress=lambda: self._progress(shard))

    def _progress(self, shard: str) -> ShardProgress | None:
        if self._world.leaders[shard] != self._me:
            return None
        follower = ReplicaPosition(replica=sorted(REPLICAS)[1], position=END - 10)
        return ShardProgress(epoch=7, end=END, committed=END - 10, acknowledged=[follower])


def shown(world: World, at: BrokerName) -> list[tuple[str | None, str, bool, list[int | None]]]:
    status = asyncio.run(world.views[at].status())
    return [
        (shard.vhost, shard.leader, shard.is_led, [replica.lag_bytes for replica in shard.replicas])
        for shard in status.shards
    ]


def test_every_broker_shows_what_the_leaders_know() -> None:
    world = World()
    world.leaders[SHARD] = BROKERS[1]

    for broker in BROKERS:
        meta, vhost = shown(world, broker)
        assert meta == (None, "mq-0", True, [0, 10, None])
        assert vhost == (VHOST, "mq-1", True, [None, 0, None])


def test_a_leader_that_does_not_answer_leaves_gaps() -> None:
    world = World()
    world.gone = {BROKERS[0]}

    assert shown(world, BROKERS[1]) == [(None, "mq-0", False, [None] * 3), (VHOST, "mq-0", False, [None] * 3)]


def test_a_shard_without_a_record_is_shown() -> None:
    world = World()
    world.hosts[BROKERS[1]].has_coordinator = False

    assert shown(world, BROKERS[1]) == [(None, "", False, []), (VHOST, "", False, [])]
