"""The host of replicas, over a node that the test makes up and a coordinator in a directory."""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from penstock.cluster.coordinator import Refused, Version
from penstock.cluster.directory import DirectoryCoordinator
from penstock.cluster.early import EARLY_BYTES_MAX
from penstock.cluster.host import ClusterHost, Member, ReplicaOptions
from penstock.cluster.hosted import HostedReplica
from penstock.cluster.record import BrokerName, Leader, ShardRecord
from penstock.cluster.shard_calls import HandOver
from penstock.cluster.translation import broker_number
from penstock.native import (
    ChangeAsked,
    ClusterNode,
    HeardLeader,
    PeerChanged,
    PeerMessage,
    Replica,
    ReplicaRole,
    ReplicaStanding,
    RoleChanged,
)

ME = Member(bytes(16), BrokerName("mq-0"), boot=5)
REPLICAS = [f"{number:032x}" for number in range(1, 4)]
TURN_S = 0.05
LEADS = ReplicaRole(epoch=3, appends=True)


class MadeUpNode:
    """A node with one replica that leads, and is asked to hand over to others."""

    def __init__(self) -> None:
        self.wake_fd = os.eventfd(0)
        self.handed_over_to: list[str] = []
        self.end = 1
        self.has_read = threading.Event()
        self._reports: list[object] = []

    def report(self, *reports: object) -> None:
        self._reports += reports
        os.eventfd_write(self.wake_fd, 1)

    def take(self) -> list[object]:
        os.eventfd_read(self.wake_fd)
        taken, self._reports = self._reports, []
        return taken

    def open(self, *_: object, **__: object) -> Any:
        standing = ReplicaStanding(role=LEADS, committed=0, end=self.end)
        return SimpleNamespace(replica=REPLICAS[0], standing=standing, hand_over=self.handed_over_to.append)

    def read(self, *_: object) -> None:
        self.has_read.set()

    def changed(self, *_: object) -> None:
        pass

    def set_peer(self, *_: object) -> None:
        pass

    def close_replica(self, _: bytes) -> None:
        pass

    def close(self) -> None:
        os.close(self.wake_fd)


class ForgetfulCoordinator(DirectoryCoordinator):
    """Its first changes are lost on their way."""

    lost_count = 2

    async def change(self, shard: str, base: Version | None, record: ShardRecord) -> Version | Refused:
        if self.lost_count:
            self.lost_count -= 1
            return Refused.UNKNOWN
        return await super().change(shard, base, record)


class SlowCoordinator(DirectoryCoordinator):
    """Its answers to changes come when they may."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.has_changed, self.may_answer = asyncio.Event(), asyncio.Event()

    async def change(self, shard: str, base: Version | None, record: ShardRecord) -> Version | Refused:
        outcome = await super().change(shard, base, record)
        self.has_changed.set()
        await self.may_answer.wait()
        return outcome


async def until(is_so: Callable[[], bool]) -> None:
    for _ in range(int(60 / TURN_S)):
        if is_so():
            return
        await asyncio.sleep(TURN_S)
    raise AssertionError("it is not so after a minute")


def record_with(in_sync: int) -> ShardRecord:
    return ShardRecord(
        epoch=3,
        leader=Leader(broker=ME.name, replica=REPLICAS[0], boot=ME.boot),
        in_sync=tuple(REPLICAS[:in_sync]),
        replicas={replica: f"mq-{number}" for number, replica in enumerate(REPLICAS)},
        min_in_sync=1,
    )


def test_a_majority_is_asked_for_until_the_coordinator_has_it(tmp_path: Path) -> None:
    async def run() -> None:
        directory = tmp_path / "coordinator"
        await DirectoryCoordinator(directory).change("meta", None, record_with(in_sync=2))
        coordinator = ForgetfulCoordinator(directory)
        host = ClusterHost(cast(ClusterNode, MadeUpNode()), coordinator, ME)
        host.start()
        await host.open("meta", tmp_path / "meta", ReplicaOptions())

        async with asyncio.timeout(60):
            async for found in coordinator.watch("meta"):
                if found.record.min_in_sync == 2:
                    break
        await host.stop()

    asyncio.run(run())


async def handed_over_to(
    directory: Path, to: str | None = None, draining: Sequence[str] = (), connected: Sequence[str] = ("mq-1", "mq-2")
) -> set[str]:
    """Return who is asked to lead a shard whose replicas are all in sync."""
    node = MadeUpNode()
    node.report(*(PeerChanged(broker=broker_number(name), is_connected=True) for name in connected))
    coordinator = DirectoryCoordinator(directory / "coordinator")
    await coordinator.change("meta", None, record_with(in_sync=3))
    host = ClusterHost(cast(ClusterNode, node), coordinator, ME)
    host.draining = frozenset(map(BrokerName, draining))
    host.start()
    replica = await host.open("meta", directory / "meta", ReplicaOptions())
    async with asyncio.timeout(60):
        while len(host.heirs_of(replica.shard)) < len(connected):  # noqa: ASYNC110 (the watch tells of nothing)
            await asyncio.sleep(0.01)
    for _ in range(50):
        await host.hand_over(replica.shard, None if to is None else BrokerName(to))
    await host.stop()
    return set(node.handed_over_to)


def test_shards_of_a_group_are_handed_over_to_one_broker_that_is_in_sync_in_all(tmp_path: Path) -> None:
    shards = ["shop.0.1", "shop.1.1", "shop.2.1"]

    async def run() -> None:
        node = MadeUpNode()
        node.report(*(PeerChanged(broker=broker_number(name), is_connected=True) for name in ("mq-1", "mq-2")))
        coordinator = DirectoryCoordinator(tmp_path / "coordinator")
        for shard, in_sync in zip(shards, (3, 2, 3), strict=True):
            await coordinator.change(shard, None, record_with(in_sync))
        host = ClusterHost(cast(ClusterNode, node), coordinator, ME)
        host.group(shards)
        host.start()
        replicas = [await host.open(shard, tmp_path / shard, ReplicaOptions()) for shard in shards]
        await until(lambda: len(host.epochs_of_group(replicas[0].shard)) == 3)
        await until(lambda: host.is_connected(BrokerName("mq-2")))

        assert [set(host.heirs_of(replica.shard).values()) for replica in replicas] == [{"mq-1"}] * 3
        assert [await host.hand_over(replica.shard) for replica in replicas] == ["mq-1"] * 3
        assert await host.hand_over(replicas[0].shard, BrokerName("mq-2")) is None
        assert [replica.shard for replica in host.led()] == [replicas[0].shard]
        assert host.leader_of_group(replicas[2].shard) == ME.name
        host.draining = frozenset({ME.name})
        assert host.leader_of_group(replicas[2].shard) == "mq-1"

        node.handed_over_to.clear()
        resigning = asyncio.ensure_future(host.resign(replicas[0]))
        await until(lambda: len(node.handed_over_to) == 1)
        replicas[0].take_role(ReplicaRole())
        assert await resigning is HandOver.DONE
        assert node.handed_over_to == [REPLICAS[1]] * 3, "the others follow"
        await host.stop()

    asyncio.run(run())


def test_a_shard_is_handed_over_to_another_replica_in_sync(tmp_path: Path) -> None:
    assert asyncio.run(handed_over_to(tmp_path / "any")) == {REPLICAS[1], REPLICAS[2]}
    assert asyncio.run(handed_over_to(tmp_path / "chosen", to="mq-2")) == {REPLICAS[2]}
    assert asyncio.run(handed_over_to(tmp_path / "gone", to="mq-2", connected=["mq-1"])) == set()


def test_a_shard_is_handed_over_to_a_drained_broker_only_where_there_is_no_other(tmp_path: Path) -> None:
    assert asyncio.run(handed_over_to(tmp_path / "one", draining=["mq-1"])) == {REPLICAS[2]}
    assert asyncio.run(handed_over_to(tmp_path / "both", draining=["mq-1", "mq-2"])) == {REPLICAS[1], REPLICAS[2]}


def test_a_role_that_was_reported_is_newer_than_the_standing_at_the_start() -> None:
    async def run() -> None:
        replica = HostedReplica(cast(Replica, None), bytes(16))
        replica.take_role(LEADS)

        replica.take_standing(ReplicaStanding(role=ReplicaRole(), committed=7, end=9))

        assert (replica.role, replica.committed) == (LEADS, 7)

    asyncio.run(run())


def test_no_record_is_made_for_a_shard_that_was_closed_before_its_turn(tmp_path: Path) -> None:
    async def run() -> None:
        node = MadeUpNode()
        node.end = 0
        coordinator = DirectoryCoordinator(tmp_path / "coordinator")
        host = ClusterHost(cast(ClusterNode, node), coordinator, ME)
        host.start()
        replica = await host.open("shop", tmp_path / "shop", ReplicaOptions(), [ME.name], found_after_s=TURN_S)

        await host.close(replica)
        await asyncio.sleep(2 * TURN_S)

        assert await coordinator.read("shop") is None
        await host.stop()

    asyncio.run(run())


class Receiver:
    """Keeps the messages that it takes."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, bytes]] = []
        self.deposed_brokers: list[int] = []
        self.has_heard = asyncio.Event()

    def received(self, broker: int, content: bytes) -> None:
        self.taken.append((broker, content))

    def disconnected(self, broker: int) -> None:
        del broker

    def deposed(self, broker: int) -> None:
        self.deposed_brokers.append(broker)
        self.has_heard.set()


def test_a_question_that_comes_while_a_broker_starts_is_not_lost(tmp_path: Path) -> None:
    """It was dropped, and the broker that asked waited ten seconds for the answer."""

    async def run() -> None:
        node, receiver = MadeUpNode(), Receiver()
        shard, other = b"1" * 16, b"2" * 16
        host = ClusterHost(cast(ClusterNode, node), DirectoryCoordinator(tmp_path / "coordinator"), ME)
        host.start()
        node.report(
            PeerMessage(broker=1, shard=shard, content=b"from the first"),
            PeerMessage(broker=2, shard=shard, content=b"from one whose connection breaks"),
            PeerMessage(broker=1, shard=other, content=b"about another shard"),
            PeerChanged(broker=2, is_connected=False),
        )
        await asyncio.sleep(TURN_S)

        host.receive(shard, receiver)
        node.report(PeerMessage(broker=3, shard=shard, content=b"from the third"))
        await asyncio.sleep(TURN_S)

        assert receiver.taken == [(1, b"from the first"), (3, b"from the third")]
        await host.stop()

    asyncio.run(run())


def test_early_messages_do_not_fill_the_memory(tmp_path: Path) -> None:
    """They were bounded by their number alone, and each of them can have the size of a frame."""

    async def run() -> None:
        node, receiver, shard = MadeUpNode(), Receiver(), b"1" * 16
        host = ClusterHost(cast(ClusterNode, node), DirectoryCoordinator(tmp_path / "coordinator"), ME)
        host.start()
        node.report(*(PeerMessage(broker=1, shard=shard, content=bytes(1024 * 1024)) for _ in range(20)))
        node.report(PeerMessage(broker=2, shard=shard, content=b"the last one"))
        await asyncio.sleep(TURN_S)

        host.receive(shard, receiver)

        assert sum(len(content) for _, content in receiver.taken) <= EARLY_BYTES_MAX
        assert len(receiver.taken) == 8
        assert receiver.taken[-1] == (2, b"the last one")
        await host.stop()

    asyncio.run(run())


def test_who_waits_for_a_leader_hears_that_another_broker_leads(tmp_path: Path) -> None:
    async def run() -> None:
        coordinator = DirectoryCoordinator(tmp_path / "coordinator")
        record = record_with(in_sync=2).model_copy(update={"min_in_sync": 2})
        version = await coordinator.change("meta", None, record)
        assert not isinstance(version, Refused)
        node, receiver = MadeUpNode(), Receiver()
        host = ClusterHost(cast(ClusterNode, node), coordinator, ME)
        host.start()
        replica = await host.open("meta", tmp_path / "meta", ReplicaOptions())
        host.receive(replica.shard, receiver)
        assert await asyncio.to_thread(node.has_read.wait, 60)

        leader = Leader(broker="mq-1", replica=REPLICAS[1], boot=7)
        changed = record.model_copy(update={"epoch": 4, "leader": leader})
        assert not isinstance(await coordinator.change("meta", version, changed), Refused)

        await asyncio.wait_for(receiver.has_heard.wait(), 60)
        assert receiver.deposed_brokers == [host.translation.number_of(ME.name)]
        await host.stop()

    asyncio.run(run())


def test_a_late_answer_brings_no_leader_back_that_was_replaced(tmp_path: Path) -> None:
    """The broker named itself as the leader until the record changed again."""

    async def run() -> None:
        coordinator, other = SlowCoordinator(tmp_path / "coordinator"), DirectoryCoordinator(tmp_path / "coordinator")
        record = record_with(in_sync=3).model_copy(update={"min_in_sync": 2})
        version = await other.change("meta", None, record)
        assert not isinstance(version, Refused)
        host = ClusterHost(cast(ClusterNode, MadeUpNode()), coordinator, ME)
        host.start()
        shard = (await host.open("meta", tmp_path / "meta", ReplicaOptions())).shard
        await until(lambda: host.leader_of(shard) is not None)

        smaller = record.model_copy(update={"in_sync": record.in_sync[:2]})
        base, wanted = host.translation.version_number(version), host.translation.state_of(smaller)
        asked = SimpleNamespace(shard=shard, base=base, record=wanted, change=1)
        changing = asyncio.create_task(host._change(cast(ChangeAsked, asked)))
        await coordinator.has_changed.wait()
        found = await other.read("meta")
        assert found is not None
        leader = Leader(broker="mq-1", replica=REPLICAS[1], boot=9)
        elected = smaller.model_copy(update={"epoch": 4, "leader": leader})
        assert not isinstance(await other.change("meta", found.version, elected), Refused)
        await until(lambda: host.leader_of(shard) == (host.translation.number_of("mq-1"), 4))

        coordinator.may_answer.set()
        await changing
        assert host.leader_of(shard) == (host.translation.number_of("mq-1"), 4)
        await host.stop()

    asyncio.run(run())


def test_a_leader_that_a_replica_has_heard_counts_before_the_record_shows_it(tmp_path: Path) -> None:
    async def run() -> None:
        coordinator, node = DirectoryCoordinator(tmp_path / "coordinator"), MadeUpNode()
        assert not isinstance(await coordinator.change("meta", None, record_with(in_sync=3)), Refused)
        host = ClusterHost(cast(ClusterNode, node), coordinator, ME)
        host.start()
        shard = (await host.open("meta", tmp_path / "meta", ReplicaOptions())).shard
        await until(lambda: host.leader_of(shard) == (broker_number(ME.name), 3))
        host.set_peer(BrokerName("mq-1"), "127.0.0.1:1")
        node.report(PeerChanged(broker=broker_number("mq-1"), is_connected=True))

        for epoch, leader in ((2, ME.name), (4, "mq-1")):
            heard = HeardLeader(epoch=epoch, broker=broker_number("mq-1"))
            replica = host._replicas[shard]
            changed = replica.changed
            node.report(RoleChanged(shard=shard, role=ReplicaRole(follows=heard)))
            await asyncio.wait_for(changed.wait(), 60)
            assert host.leader_name(shard) == leader

        node.report(PeerChanged(broker=broker_number("mq-1"), is_connected=False))
        await until(lambda: host.leader_name(shard) is None)
        unknown = broker_number("mq-9")
        node.report(PeerChanged(broker=unknown, is_connected=True))
        node.report(RoleChanged(shard=shard, role=ReplicaRole(follows=HeardLeader(epoch=5, broker=unknown))))
        await until(lambda: host.leader_of(shard) == (unknown, 5))
        assert host.leader_name(shard) is None, "no record has it, and it was not made known"
        await host.stop()

    asyncio.run(run())


def test_leaders_are_deposed_when_another_one_is_heard_or_recorded_and_no_others(tmp_path: Path) -> None:
    """Calls to a leader that was only heard were not ended, and those to one that leads again were."""

    async def run() -> None:
        coordinator, node = DirectoryCoordinator(tmp_path / "coordinator"), MadeUpNode()
        record = record_with(in_sync=3).model_copy(update={"min_in_sync": 2})
        version = await coordinator.change("meta", None, record)
        host = ClusterHost(cast(ClusterNode, node), coordinator, ME)
        host.start()
        shard = (await host.open("meta", tmp_path / "meta", ReplicaOptions())).shard
        receiver = Receiver()
        host.receive(shard, receiver)
        await until(lambda: host.leader_of(shard) == (broker_number(ME.name), 3))

        def hear(epoch: int, leader: str) -> None:
            heard = HeardLeader(epoch=epoch, broker=broker_number(leader))
            node.report(RoleChanged(shard=shard, role=ReplicaRole(follows=heard)))

        async def record_leader(version: Version | Refused | None, epoch: int, number: int) -> Version | Refused:
            leader = Leader(broker=f"mq-{number}", replica=REPLICAS[number], boot=9)
            assert not isinstance(version, Refused)
            return await coordinator.change(
                "meta", version, record.model_copy(update={"epoch": epoch, "leader": leader})
            )

        hear(4, "mq-1")
        await until(lambda: receiver.deposed_brokers == [broker_number(ME.name)])
        hear(6, "mq-1")
        version = await record_leader(version, 5, 2)
        await until(lambda: host._records[shard].record.epoch == 5)
        assert receiver.deposed_brokers == [broker_number(ME.name)], "it leads again"
        await record_leader(version, 7, 2)
        await until(lambda: receiver.deposed_brokers == [broker_number(ME.name), broker_number("mq-1")])
        await host.stop()

    asyncio.run(run())
