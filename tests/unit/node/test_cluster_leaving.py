"""A replica that is not to be at its broker any more: it is closed when it has left, and its log is deleted.

That waits until no leader can count the replica.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.cluster.host import ClusterHost, ReplicaOptions
from penstock.cluster.record import BrokerName, Leader, ShardRecord
from penstock.cluster.shard_calls import HandOver, ShardReport
from penstock.metadata import VhostTopology
from penstock.model.errors import StorageError, Thing
from penstock.model.names import VhostName
from penstock.native import Engine, ReplicaIdentity, ReplicaRole
from penstock.node.in_cluster import leaving, shard_replica
from penstock.node.in_cluster import replica as replica_module
from penstock.node.in_cluster.leaving import delete_left
from penstock.node.in_cluster.log_copies import LogCopies
from penstock.node.in_cluster.metadata import Metadata
from penstock.node.in_cluster.owner import ClusterOwner
from penstock.node.in_cluster.replica import VhostPlace, VhostReplica
from penstock.node.in_cluster.shard_replica import ReplicaSurroundings

ME, OTHER, THIRD, NAME, SHARD = BrokerName("mq-0"), BrokerName("mq-1"), BrokerName("mq-2"), VhostName("shop"), "shop.1"
MINE, OTHERS = "a" * 32, "b" * 32
SECONDS_MAX = 60
"""Only ends a test that would otherwise never end."""


def record(*brokers: BrokerName, epoch: int = 7, leader: BrokerName = OTHER) -> ShardRecord:
    replicas: dict[str, str] = {
        MINE if broker == ME else OTHERS if broker == OTHER else "c" * 32: broker for broker in brokers
    }
    return ShardRecord(
        epoch=epoch,
        leader=Leader(broker=leader, replica=MINE if leader == ME else OTHERS, boot=1),
        in_sync=tuple(sorted(replicas)),
        replicas=replicas,
        min_in_sync=1,
    )


class World:
    """One shard, its coordinator, and the replica of this broker."""

    def __init__(self, directory: Path) -> None:
        self.me = SimpleNamespace(name=ME)
        self.record: ShardRecord | None = record(ME, OTHER)
        self.directory = directory
        self.acknowledged: dict[str, int] = {}
        self.report_epoch = 7
        self.is_open = False
        self.replica = SimpleNamespace(shard=b"shard", replica=MINE, role=ReplicaRole(), changed=asyncio.Event())
        self.replica.wake = self.wake
        self.replica.heard = lambda: None
        self.placed: list[tuple[BrokerName, ...]] = []
        self.resigned_count = 0
        self.after_report: Callable[[], None] = lambda: None

    def wake(self) -> None:
        self.replica.changed.set()
        self.replica.changed = asyncio.Event()
        self.replica.heard()

    async def read_record(self, shard: str) -> ShardRecord | None:
        assert shard == SHARD
        if self.record is None:
            raise StorageError(Thing("coordinator", "etcd"), "cannot be reached", "check it")
        return self.record

    def known_record(self, _: str) -> ShardRecord | None:
        return self.record

    def leader_name(self, _: bytes) -> BrokerName | None:
        return None if self.record is None else BrokerName(self.record.leader.broker)

    def heirs_of(self, _: bytes) -> dict[str, BrokerName]:
        return {OTHERS: OTHER}

    async def open(self, *_: Any) -> Any:
        assert not self.is_open
        self.is_open = True
        (self.directory / "replica").write_text("identity")
        (self.directory / "msgs.0000000001").write_text("messages")
        return self.replica

    async def place(self, _: Any, brokers: Sequence[BrokerName]) -> None:
        self.placed.append(tuple(brokers))

    async def close(self, _: Any) -> None:
        self.is_open = False

    def group(self, shards: Sequence[str]) -> None:
        assert list(shards) == [SHARD]

    async def resign(self, _: Any, to: BrokerName | None = None) -> HandOver:
        assert to is None
        self.resigned_count += 1
        self.record = record(ME, OTHER, leader=OTHER, epoch=8)
        self.replica.role = ReplicaRole()
        return HandOver.DONE

    async def ask(self, leader: BrokerName, shards: Sequence[str]) -> Sequence[ShardReport]:
        assert (leader, list(shards), self.is_open) == (OTHER, [SHARD], False)
        report = ShardReport(SHARD, self.report_epoch, 1_000, dict(self.acknowledged))
        self.after_report()
        return [report]

    def has_log(self) -> bool:
        return (self.directory / "msgs.0000000001").exists()


def surroundings(world: World) -> ReplicaSurroundings:
    host, copies = cast(ClusterHost, world), cast(LogCopies, None)
    return ReplicaSurroundings(host, cast(Engine, None), ReplicaOptions(), copies, world.ask)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "LOOK_S", 0.01)
    monkeypatch.setattr(shard_replica, "LEAVE_S", 0.01)
    monkeypatch.setattr(shard_replica, "DELETE_S_MIN", 0.01)
    monkeypatch.setattr(shard_replica, "DELETE_S_MAX", 0.01)

    def identity(directory: str) -> ReplicaIdentity | None:
        return ReplicaIdentity(replica=MINE, promised=7) if (Path(directory) / "replica").exists() else None

    monkeypatch.setattr(leaving, "read_replica", identity)
    monkeypatch.setattr("penstock.node.in_cluster.recovered_log.read_replica", identity)


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 (what changes has no event)
        await asyncio.sleep(0.005)


def test_a_replica_that_has_left_is_closed_and_deleted_and_may_come_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        metadata = cast(Metadata, SimpleNamespace(me=ME))
        place = VhostPlace(NAME, [SHARD], tmp_path, (ME, OTHER))
        replica = VhostReplica(surroundings(world), place)
        replica.owner = ClusterOwner(VhostTopology(NAME), metadata, replica)
        running = asyncio.ensure_future(replica.run(metadata, lambda _: None))
        await until(lambda: world.placed == [(ME, OTHER)])

        replica.place((OTHER, THIRD))
        await until(lambda: world.placed[-1] == (OTHER, THIRD))
        await asyncio.sleep(0.05)
        assert world.is_open, "the record names it still"
        world.acknowledged, world.record = {MINE: 900}, record(OTHER, THIRD)
        await until(lambda: not world.is_open)
        await asyncio.sleep(0.05)
        assert world.has_log(), "the leader counts it still"
        world.acknowledged = {OTHERS: 900}
        await until(lambda: not world.has_log())

        replica.place((ME, OTHER, THIRD))
        await until(lambda: world.is_open and world.placed[-1] == (ME, OTHER, THIRD))
        running.cancel()

    asyncio.run(asyncio.wait_for(scenario(), SECONDS_MAX))


def test_a_leader_hands_over_when_its_replica_is_the_last_one_to_go(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        world.record = record(ME, THIRD, leader=ME)
        metadata = cast(Metadata, SimpleNamespace(me=ME))
        place = VhostPlace(NAME, [SHARD], tmp_path, (ME, OTHER))
        replica = VhostReplica(surroundings(world), place)
        replica.owner = ClusterOwner(VhostTopology(NAME), metadata, replica)
        running = asyncio.ensure_future(replica.run(metadata, lambda _: None))
        await until(lambda: world.is_open)
        world.replica.role = ReplicaRole(epoch=7)

        replica.place((OTHER,))
        await asyncio.sleep(0.05)
        assert world.resigned_count == 0, "another replica has to go, and one to come"
        world.record = record(ME, OTHER, leader=ME)

        await until(lambda: world.resigned_count == 1)
        world.record, world.report_epoch = record(OTHER, epoch=8), 8
        await until(lambda: not world.has_log())
        running.cancel()

    asyncio.run(asyncio.wait_for(scenario(), SECONDS_MAX))


@pytest.mark.parametrize("case", ["named", "other epoch", "counted", "elected since", "added since", "no coordinator"])
def test_a_log_is_kept_while_a_leader_may_count_it(tmp_path: Path, case: str) -> None:
    async def scenario() -> None:
        world = World(tmp_path)
        await world.open()
        world.is_open, world.record = False, record(OTHER)
        match case:
            case "named":
                world.record = record(ME, OTHER)
            case "other epoch":
                world.report_epoch = 6
            case "counted":
                world.acknowledged = {MINE: 0}
            case "elected since":
                world.after_report = lambda: setattr(world, "record", record(OTHER, epoch=8))
            case "added since":
                world.after_report = lambda: setattr(world, "record", record(ME, OTHER))
            case "no coordinator":
                world.record = None
        assert not await delete_left(cast(ClusterHost, world), world.ask, SHARD, tmp_path)
        assert world.has_log()
        world.record, world.report_epoch, world.acknowledged = record(OTHER), 7, {}
        world.after_report = lambda: None
        assert await delete_left(cast(ClusterHost, world), world.ask, SHARD, tmp_path)
        assert not world.has_log()

    asyncio.run(asyncio.wait_for(scenario(), SECONDS_MAX))
