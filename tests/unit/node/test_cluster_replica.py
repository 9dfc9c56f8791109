"""A broker's replica of a virtual host: it does not go on leading with queues that lack a change."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.cluster.host import ClusterHost, ReplicaOptions
from penstock.cluster.record import BrokerName, Leader, Recovery, ShardRecord
from penstock.cluster.shard_calls import HandOver
from penstock.metadata import VhostTopology
from penstock.metadata.effects import DropQueue
from penstock.model.errors import NotLedError, StorageError, Thing
from penstock.model.names import QueueId, QueueName, VhostName
from penstock.native import Engine, ReplicaRole, ReplicaStanding
from penstock.node.in_cluster import shard_replica
from penstock.node.in_cluster.log_copies import LogCopies
from penstock.node.in_cluster.metadata import Metadata
from penstock.node.in_cluster.owner import ClusterOwner
from penstock.node.in_cluster.replica import VhostPlace, VhostReplica
from penstock.node.in_cluster.shard_replica import ReplicaSurroundings
from penstock.storage.setting_aside import SET_ASIDE
from support.vhost_fakes import FakeShard

ME, OTHER, THIRD, NAME = BrokerName("mq-0"), BrokerName("mq-1"), BrokerName("mq-2"), VhostName("shop")
SECONDS_MAX = 60
"""Only ends a test that would otherwise never end."""


async def no_answer(*_: Any) -> tuple[()]:
    """Be a leader that is not reached."""
    return ()


class FailingShard(FakeShard):
    """Its disk takes no deletion of a queue."""

    def delete_queue(self, *_: Any, **__: Any) -> int:
        raise StorageError(Thing("vhost", NAME), "is not stored", "free some space")


class FakeReplica:
    shard = b"shard"

    def __init__(self) -> None:
        self.role = ReplicaRole(epoch=3, appends=True)
        self.changed = asyncio.Event()
        self.heard: Callable[[], None] = lambda: None
        self.led_count = 0
        self.ended: list[tuple[int, str]] = []
        """The streams whose readers were ended, and why."""

    def end_readers(self, queue: int, reason: str) -> None:
        self.ended.append((queue, reason))

    def change(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()
        self.heard()

    async def lead(self, engine: Engine, vhost: VhostName, epoch: int) -> FakeShard:
        del engine
        assert (vhost, epoch) == (NAME, 3)
        self.led_count += 1
        return FailingShard()


def surroundings(host: object) -> ReplicaSurroundings:
    copies = cast(LogCopies, None)
    return ReplicaSurroundings(cast(ClusterHost, host), cast(Engine, None), ReplicaOptions(), copies, no_answer)


class FakeHost:
    """Lets the replica lead until it is asked to hand over."""

    def __init__(self) -> None:
        self.me = SimpleNamespace(name=ME)
        self.replica = FakeReplica()
        self.has_resigned = asyncio.Event()

    async def open(self, *_: Any) -> FakeReplica:
        return self.replica

    async def place(self, _: FakeReplica, brokers: Sequence[BrokerName]) -> None:
        assert brokers == (ME, OTHER)

    def group(self, shards: Sequence[str]) -> None:
        """Have one shard."""

    def heirs_of(self, _: bytes) -> dict[str, BrokerName]:
        return {"b" * 32: OTHER}

    async def resign(self, replica: FakeReplica, to: BrokerName | None = None) -> HandOver:
        assert (replica, to) == (self.replica, None)
        self.has_resigned.set()
        return HandOver.DONE

    def leader_name(self, shard: bytes) -> BrokerName | None:
        assert shard == self.replica.shard
        return ME


class FollowingHost(FakeHost):
    """Another broker leads, if one is known."""

    def __init__(self) -> None:
        super().__init__()
        self.replica.role = ReplicaRole()
        self.leader: BrokerName | None = OTHER

    def leader_name(self, shard: bytes) -> BrokerName | None:
        assert shard == self.replica.shard
        return self.leader


class FakeMetadata:
    me = ME

    async def latest(self) -> None:
        """There is nothing new."""


def test_another_broker_leads_when_the_queues_of_this_one_take_no_change(tmp_path: Path) -> None:
    async def scenario() -> None:
        host, metadata = FakeHost(), cast(Metadata, FakeMetadata())
        place = VhostPlace(NAME, ["shop.1"], tmp_path, (ME, OTHER))
        replica = VhostReplica(surroundings(host), place)
        replica.owner = ClusterOwner(VhostTopology(NAME), metadata, replica)
        leads = asyncio.Event()
        running = asyncio.ensure_future(replica.run(metadata, lambda _: leads.set()))
        await leads.wait()
        assert isinstance(replica.owner.shard, FailingShard)

        replica.take([DropQueue(QueueId(7), QueueName("orders"))])

        assert host.replica.ended == [(7, "queue 'orders' was deleted")]
        await host.has_resigned.wait()
        assert replica.fault == "vhost 'shop' is not stored; free some space"
        with pytest.raises(NotLedError):
            _ = replica.owner.shard
        host.replica.change()
        await asyncio.sleep(0)
        assert host.replica.led_count == 1, "the same term is not begun again"
        running.cancel()

    asyncio.run(asyncio.wait_for(scenario(), SECONDS_MAX))


class HaltedReplica:
    """It has committed more than its leader has."""

    shard, replica = b"shard", "a" * 32

    def __init__(self) -> None:
        self.role = ReplicaRole(halted="the leader does not have records that are committed", halt="committed")
        self.changed = asyncio.Event()

    async def standing(self) -> ReplicaStanding:
        return ReplicaStanding(role=self.role, committed=900, end=1_000, promised=9 << 20, log_epoch=70)


class RecoveredHost:
    """The first replica that it opens has halted, and the next one follows. The shard is recovered at some time."""

    def __init__(self) -> None:
        self.me = SimpleNamespace(name=ME)
        self.record: ShardRecord | None = None
        self.halted = HaltedReplica()
        self.opened_count = 0
        self.has_opened_again = asyncio.Event()

    def group(self, shards: Sequence[str]) -> None:
        """Have one shard."""

    def leader_name(self, _: bytes) -> BrokerName | None:
        return None if self.record is None else BrokerName(self.record.leader.broker)

    async def read_record(self, _: str) -> ShardRecord | None:
        return self.record

    def known_record(self, _: str) -> ShardRecord | None:
        return self.record

    async def open(self, _: str, directory: Path, *__: Any) -> Any:
        self.opened_count += 1
        if self.opened_count == 1:
            (directory / "msgs.0000000001").write_bytes(b"confirmed")
            return self.halted
        self.has_opened_again.set()
        return SimpleNamespace(shard=b"shard", role=ReplicaRole(), changed=asyncio.Event())

    async def place(self, *_: Any) -> None:
        """Be told of the brokers that it has already."""

    async def close(self, replica: HaltedReplica) -> None:
        assert replica is self.halted


def test_a_replica_that_has_more_than_a_recovered_shard_begins_anew_and_keeps_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_replica, "HALTED_S", 0.01)
    directory = tmp_path / "vhost"
    directory.mkdir()
    recovery = Recovery(epoch=8 << 20, broker=OTHER, replica="b" * 32, end=800, by="root", at_ms=1, lost=())
    recovered = ShardRecord(
        epoch=9 << 20,
        leader=Leader(broker=OTHER, replica="b" * 32, boot=1),
        in_sync=("b" * 32,),
        replicas={"b" * 32: OTHER, "a" * 32: ME},
        min_in_sync=1,
        recoveries=(recovery,),
    )

    async def scenario() -> None:
        host, metadata = RecoveredHost(), cast(Metadata, FakeMetadata())
        place = VhostPlace(NAME, ["shop.1"], directory, (ME, OTHER))
        replica = VhostReplica(surroundings(host), place)
        replica.owner = ClusterOwner(VhostTopology(NAME), metadata, replica)
        running = asyncio.ensure_future(replica.run(metadata, lambda _: None))
        await replica.opened()
        await asyncio.sleep(0.1)
        assert replica.fault == "the leader does not have records that are committed"
        assert host.opened_count == 1, "nothing explains yet that it has halted"

        host.record = recovered

        await host.has_opened_again.wait()
        assert replica.fault is None
        (kept,) = (tmp_path / SET_ASIDE).glob("*/msgs.*")
        assert kept.read_bytes() == b"confirmed"
        running.cancel()

    asyncio.run(asyncio.wait_for(scenario(), SECONDS_MAX))


def test_clients_that_are_relayed_look_again_when_another_broker_leads(tmp_path: Path) -> None:
    async def scenario() -> None:
        host, metadata = FollowingHost(), cast(Metadata, FakeMetadata())
        replica = VhostReplica(surroundings(host), VhostPlace(NAME, ("shop.1",), tmp_path, (ME, OTHER)))
        replica.owner = ClusterOwner(VhostTopology(NAME), metadata, replica)
        heard = asyncio.Queue[VhostName]()
        running = asyncio.ensure_future(replica.run(metadata, heard.put_nowait))
        await replica.opened()
        assert await replica.find_leader() == OTHER

        for leader in (None, OTHER, None, THIRD):
            host.leader = leader
            host.replica.change()
            await asyncio.sleep(0.01)
            assert heard.qsize() == (leader == THIRD)

        running.cancel()

    asyncio.run(asyncio.wait_for(scenario(), SECONDS_MAX))
