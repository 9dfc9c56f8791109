"""The log of a replica that its disk has corrupted: set aside once another broker leads, and not again and again."""

import asyncio
import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from penstock.cluster.host import ClusterHost, ReplicaOptions
from penstock.cluster.record import BrokerName, Leader, ShardRecord
from penstock.cluster.shard_calls import ShardReport
from penstock.kit.clock import SystemClock
from penstock.model.errors import CorruptError, StorageError, Thing
from penstock.model.names import VhostName
from penstock.native import Engine, ReplicaIdentity, ReplicaRole
from penstock.node.in_cluster import corrupt_log, shard_replica
from penstock.node.in_cluster.corrupt_log import AGAIN_S, Repairs, is_marked
from penstock.node.in_cluster.log_copies import LogCopies
from penstock.node.in_cluster.shard_replica import ReplicaSurroundings, ShardPlace, ShardReplica
from penstock.storage.setting_aside import SET_ASIDE, set_aside_corrupt
from support.log_folder import OF_A_LOG, OTHERS, folder, names

SHARD = "shop.0.1"
MINE, LEADER = "a" * 32, "b" * 32
SECONDS_MAX: Final = 60
"""Only ends a test that would otherwise never end."""


class FakeClock(SystemClock):
    now = 100.0

    def monotonic(self) -> float:
        return self.now


class World:
    """A shard that another broker leads, by its record, and as that broker says."""

    name = BrokerName("mq-0")

    def __init__(self) -> None:
        self.me = self
        self.fails = False
        self.led: int | None = 5

    async def read_record(self, shard: str) -> ShardRecord:
        assert shard == SHARD
        if self.fails:
            raise StorageError(Thing("coordinator", "etcd"), "cannot be reached", "start it")
        leader = Leader(broker="mq-1", replica=LEADER, boot=1)
        return ShardRecord(epoch=5, leader=leader, in_sync=(LEADER,), replicas={LEADER: "mq-1"}, min_in_sync=1)

    async def ask(self, leader: BrokerName, shards: Sequence[str]) -> Sequence[ShardReport]:
        assert (leader, shards) == ("mq-1", [SHARD])
        return () if self.led is None else (ShardReport(SHARD, self.led, 900, {}),)

    def repairs(self, clock: SystemClock | None = None) -> Repairs:
        return Repairs(cast(ClusterHost, self), self.ask, clock or FakeClock())


def test_a_log_is_set_aside_once_in_a_while(tmp_path: Path) -> None:
    """A disk that corrupts each copy would be filled by copies for ever."""
    directory, clock = folder(tmp_path), FakeClock()
    (directory / "replica").unlink()  # one that cannot be read is not asked for
    repairs = World().repairs(clock)

    async def run() -> None:
        assert await repairs.may_begin_anew(SHARD, directory)
        await repairs.set_aside(SHARD, directory)
        assert names(directory) == sorted(OTHERS)
        assert not await repairs.may_begin_anew(SHARD, directory)
        clock.now += AGAIN_S
        assert await repairs.may_begin_anew(SHARD, directory)

    asyncio.run(run())

    assert names(tmp_path / SET_ASIDE) == ["0123.unknown.corrupt"]


def test_without_the_coordinator_nothing_is_set_aside(tmp_path: Path) -> None:
    world = World()
    world.fails = True

    assert not asyncio.run(world.repairs().may_begin_anew(SHARD, folder(tmp_path)))


@pytest.mark.parametrize("led", [None, 4, 6])
def test_a_broker_that_leads_by_the_record_alone_is_no_leader(tmp_path: Path, led: int | None) -> None:
    """It was killed, and its own log is corrupt, too: each of the two logs may have what the other one lost."""
    world = World()
    (directory := folder(tmp_path)).joinpath("replica").unlink()
    assert asyncio.run(world.repairs().may_begin_anew(SHARD, directory))

    world.led = led

    assert not asyncio.run(world.repairs().may_begin_anew(SHARD, directory))


def test_a_disk_without_room_for_both_keeps_no_corrupt_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = folder(tmp_path)
    (directory / "replica").unlink()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 90, 10))

    asyncio.run(World().repairs().set_aside(SHARD, directory))

    assert names(directory) == sorted(OTHERS)
    assert names(tmp_path / SET_ASIDE) == []


def test_an_attempt_that_failed_on_the_way_is_completed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full for a moment."""
    directory, repairs = folder(tmp_path), World().repairs()
    rename = Path.rename

    def identity(directory: str) -> ReplicaIdentity | None:
        return ReplicaIdentity(replica=MINE, promised=5) if (Path(directory) / "replica").exists() else None

    monkeypatch.setattr(corrupt_log, "read_replica", identity)

    def fails(file: Path, target: Path) -> Path:
        if file.name == "manifest":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return rename(file, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", fails)
        with pytest.raises(StorageError, match="No space left"):
            asyncio.run(repairs.set_aside(SHARD, directory))

    asyncio.run(repairs.set_aside(SHARD, directory))

    assert names(directory) == sorted(OTHERS)
    (kept,) = (tmp_path / SET_ASIDE).iterdir()
    assert kept.name == f"0123.{MINE}.corrupt"
    assert names(kept) == sorted(OF_A_LOG)


class CorruptWorld(World):
    """Its replica has a corrupt log until that is set aside."""

    def __init__(self) -> None:
        super().__init__()
        self.is_begun_anew = asyncio.Event()

    async def open(self, _: str, directory: Path, *__: Any) -> Any:
        if (directory / "manifest").exists():
            raise CorruptError(Thing("replica", str(directory)), "has a corrupt log", "check the disk")
        self.is_begun_anew.set()
        return SimpleNamespace(role=ReplicaRole(), changed=asyncio.Event())

    async def place(self, *_: Any) -> None:
        """Be told of the brokers."""


def test_a_log_that_could_not_be_set_aside_is_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (directory := folder(tmp_path)).joinpath("replica").unlink()
    monkeypatch.setattr(corrupt_log, "AGAIN_S", 0.0)
    monkeypatch.setattr(shard_replica, "HALTED_S", 0.01)
    is_full = True

    def fails_once(directory: Path, replica: str) -> Path:
        nonlocal is_full
        if is_full:
            is_full = False
            raise StorageError(Thing("log", str(directory)), "cannot be set aside: No space left", "free some")
        return set_aside_corrupt(directory, replica)

    monkeypatch.setattr(corrupt_log, "set_aside_corrupt", fails_once)

    async def scenario() -> None:
        world = CorruptWorld()
        around = ReplicaSurroundings(
            cast(ClusterHost, world), cast(Engine, None), ReplicaOptions(), cast(LogCopies, None), world.ask
        )
        place = ShardPlace(VhostName("shop"), SHARD, 0, SHARD, directory, (world.name,))
        replica = ShardReplica(around, place, lambda: None)
        running = asyncio.ensure_future(replica.run())
        await world.is_begun_anew.wait()
        assert replica.fault is None
        running.cancel()

    asyncio.run(asyncio.wait_for(scenario(), SECONDS_MAX))


def test_the_newest_corrupt_log_of_a_shard_is_kept(tmp_path: Path) -> None:
    directory, clock = folder(tmp_path), FakeClock()
    repairs = World().repairs(clock)
    (directory / "replica").unlink()
    for content in ("first", "second"):
        for name in OF_A_LOG[1:]:
            (directory / name).write_text(content)
        asyncio.run(repairs.set_aside(SHARD, directory))

    (kept,) = (tmp_path / SET_ASIDE).iterdir()
    assert (kept / "manifest").read_text() == "second"


def test_a_log_is_marked_by_the_file_beside_a_corrupt_segment(tmp_path: Path) -> None:
    directory = folder(tmp_path)
    assert not is_marked(directory)

    (directory / "definitions.amqp.corrupt").touch()
    assert not is_marked(directory)
    (directory / "msgs.0000000001.corrupt").touch()

    assert is_marked(directory)
