"""The brokers of a cluster that grows and shrinks: who is told of them, and which ones may be removed."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.cluster.host import ClusterHost
from penstock.cluster.meta.changes import BrokerPut
from penstock.cluster.meta.commands import Addresses, RemoveBroker
from penstock.cluster.meta.member import MetaMember
from penstock.cluster.record import BrokerName, Leader, ShardRecord
from penstock.metadata.effects import Done
from penstock.model.errors import NotFoundError, PreconditionFailedError
from penstock.model.names import VhostName
from penstock.node.in_cluster.broker_changes import BrokerChanges
from penstock.node.in_cluster.cluster_view import ClusterView
from penstock.node.in_cluster.members import Members
from penstock.node.in_cluster.metadata import Metadata
from penstock.storage.cluster_json import META

ME, OTHER, THIRD, VHOST, SHARD = BrokerName("mq-0"), BrokerName("mq-1"), BrokerName("mq-2"), VhostName("/"), "/.0.1"


def record(*brokers: str, in_sync: Sequence[str] = ()) -> ShardRecord:
    replicas = {f"{ord(broker[-1]):032x}": broker for broker in brokers}
    members = [replica for replica, broker in replicas.items() if broker in (in_sync or brokers)]
    leader = Leader(broker=brokers[0], replica=next(iter(replicas)), boot=1)
    return ShardRecord(epoch=7, leader=leader, in_sync=tuple(sorted(members)), replicas=replicas, min_in_sync=1)


class World:
    """The metadata, the coordinator and the host of this broker."""

    def __init__(self, *brokers: BrokerName) -> None:
        self.brokers = {each: BrokerPut(each, 1, 1, False, Addresses(f"{each}:5681")) for each in brokers}
        self.has_begun = True
        self.vhosts = {VHOST: None}
        self.placement = {SHARD: (ME,)}
        self.records = {META: record(*brokers), SHARD: record(ME)}
        self.me = SimpleNamespace(name=ME)
        self.peers: dict[str, str] = {}
        self.placed: list[tuple[str, ...]] = []
        self.removed: list[str] = []

    @property
    def state(self) -> "World":
        return self

    def shards_of(self, _: VhostName) -> list[str]:
        return [SHARD]

    def set_peer(self, broker: str, address: str) -> None:
        self.peers[broker] = address

    def forget_peer(self, broker: str) -> None:
        del self.peers[broker]

    def hosted(self, shard: str) -> str:
        return shard

    def known_record(self, shard: str) -> ShardRecord | None:
        return self.records.get(shard)

    async def place(self, replica: str, brokers: Sequence[str]) -> None:
        assert replica == META
        self.placed.append(tuple(brokers))

    async def read_record(self, shard: str) -> ShardRecord | None:
        return self.records.get(shard)

    async def submit(self, command: RemoveBroker) -> Done:
        self.removed.append(command.broker)
        return Done()

    def changes(self) -> BrokerChanges:
        parts: Any = self
        metadata = cast(Metadata, self)
        view = ClusterView("test", cast(ClusterHost, self), cast(MetaMember, parts), metadata, lambda _: True, Path)
        return BrokerChanges(view)


def members_of(world: World, *configured: BrokerName) -> Members:
    return Members(cast(ClusterHost, world), cast(MetaMember, world), configured)


def test_brokers_that_come_and_go_are_told_of() -> None:
    async def scenario() -> None:
        world = World(ME)
        members = members_of(world)
        await members._tell()
        assert (world.peers, world.placed) == ({}, [(ME,)])

        world.brokers |= World(OTHER, THIRD).brokers
        await members._tell()
        await members._tell()
        assert world.peers == {OTHER: "mq-1:5681", THIRD: "mq-2:5681"}
        del world.brokers[OTHER]
        await members._tell()
        assert world.peers == {THIRD: "mq-2:5681"}
        assert world.placed == [(ME,), (ME, OTHER, THIRD), (ME, THIRD)]

    asyncio.run(scenario())


def test_settings_count_until_this_broker_has_joined() -> None:
    """A restored cluster has the addresses of the old one in its metadata."""

    async def scenario() -> None:
        world = World(ME, OTHER, THIRD)
        members = members_of(world, ME, OTHER)
        await members._tell()
        members.join()
        await members._tell()
        assert world.peers == {THIRD: "mq-2:5681"}
        world.brokers[OTHER] = BrokerPut(OTHER, 2, 2, False, Addresses("10.0.0.9:5681"))
        await members._tell()
        assert world.peers == {OTHER: "10.0.0.9:5681", THIRD: "mq-2:5681"}

    asyncio.run(scenario())


def test_before_a_cluster_begins_no_replica_of_the_metadata_is_taken_out() -> None:
    """Each broker joins before the command that names all of them."""
    world = World(ME)
    world.has_begun = False
    asyncio.run(members_of(world)._tell())
    assert world.placed == []


def test_a_broker_is_removed_when_the_metadata_or_its_record_says_so() -> None:
    world = World(ME, OTHER)
    members = members_of(world)
    world.records[META] = record(OTHER)
    assert not members.is_removed(), "the leader has not added it yet"
    world.records[META] = record(ME, OTHER)
    assert not members.is_removed()
    world.records[META] = record(OTHER)
    assert members.is_removed()
    del world.brokers[ME]
    assert members_of(world).is_removed()


def test_a_broker_that_is_needed_is_not_removed() -> None:
    async def refused(world: World, broker: str, text: str, error: type[Exception] = PreconditionFailedError) -> None:
        with pytest.raises(error, match=text):
            await world.changes().remove(BrokerName(broker))
        assert world.removed == []

    async def scenario() -> None:
        await refused(World(ME, OTHER), "mq-7", "broker 'mq-7' not found", NotFoundError)
        await refused(World(ME, OTHER), ME, "has a replica of vhost '/'")
        held = World(ME, OTHER)
        held.records[SHARD] = record(ME, OTHER)
        await refused(held, OTHER, "has a replica of vhost '/'")
        await refused(World(ME), ME, "is needed for the metadata")
        lagging = World(ME, OTHER, THIRD)
        lagging.records[META] = record(ME, OTHER, THIRD, in_sync=(ME, OTHER))
        await refused(lagging, OTHER, "is not in sync at broker 'mq-2'")
        await lagging.changes().remove(THIRD)
        assert lagging.removed == [THIRD]

    asyncio.run(scenario())
