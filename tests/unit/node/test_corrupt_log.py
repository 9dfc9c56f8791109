"""The log of a replica that its disk has corrupted: set aside once another broker leads, and not again and again."""

import asyncio
import shutil
from pathlib import Path
from typing import cast

import pytest

from penstock.cluster.host import ClusterHost
from penstock.cluster.record import BrokerName, Leader, ShardRecord
from penstock.kit.clock import SystemClock
from penstock.model.errors import StorageError, Thing
from penstock.node.in_cluster.corrupt_log import AGAIN_S, Repairs, is_marked
from penstock.storage.setting_aside import SET_ASIDE
from support.log_folder import OF_A_LOG, OTHERS, folder, names

SHARD = "shop.0.1"
LEADER = "b" * 32


class FakeClock(SystemClock):
    now = 100.0

    def monotonic(self) -> float:
        return self.now


class World:
    """A shard that another broker leads."""

    name = BrokerName("mq-0")

    def __init__(self) -> None:
        self.me = self
        self.fails = False

    async def read_record(self, shard: str) -> ShardRecord:
        assert shard == SHARD
        if self.fails:
            raise StorageError(Thing("coordinator", "etcd"), "cannot be reached", "start it")
        leader = Leader(broker="mq-1", replica=LEADER, boot=1)
        return ShardRecord(epoch=5, leader=leader, in_sync=(LEADER,), replicas={LEADER: "mq-1"}, min_in_sync=1)

    def is_connected(self, broker: BrokerName) -> bool:
        return broker == "mq-1"


def test_a_log_is_set_aside_once_in_a_while(tmp_path: Path) -> None:
    """A disk that corrupts each copy would be filled by copies for ever."""
    directory, clock = folder(tmp_path), FakeClock()
    (directory / "replica").unlink()  # one that cannot be read is not asked for
    repairs = Repairs(cast(ClusterHost, World()), clock)

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

    assert not asyncio.run(Repairs(cast(ClusterHost, world), FakeClock()).may_begin_anew(SHARD, folder(tmp_path)))


def test_a_disk_without_room_for_both_keeps_no_corrupt_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = folder(tmp_path)
    (directory / "replica").unlink()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 90, 10))

    asyncio.run(Repairs(cast(ClusterHost, World()), FakeClock()).set_aside(SHARD, directory))

    assert names(directory) == sorted(OTHERS)
    assert names(tmp_path / SET_ASIDE) == []


def test_the_newest_corrupt_log_of_a_shard_is_kept(tmp_path: Path) -> None:
    directory, clock = folder(tmp_path), FakeClock()
    repairs = Repairs(cast(ClusterHost, World()), clock)
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
