"""A broker whose disk comes back after the metadata was recovered without it: nothing of what it has is deleted."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.cluster.coordinator import Coordinator
from penstock.cluster.host import ClusterHost
from penstock.cluster.meta.anew import ANEW
from penstock.cluster.meta.member import MetaMember
from penstock.cluster.meta.state import MetaState
from penstock.cluster.record import BrokerName, Leader, Recovery, ShardRecord
from penstock.model.errors import InvalidArgumentError, NotFoundError, StorageError, Thing
from penstock.model.names import VhostName
from penstock.native import prepare_replica
from penstock.node.in_cluster.metadata_recovery import MetadataRecovery
from penstock.storage import directory_name
from penstock.storage.cluster_json import META
from penstock.storage.setting_aside import SET_ASIDE

A, B = BrokerName("mq-0"), BrokerName("mq-1")
MINE, OTHER = "a" * 32, "b" * 32
EPOCH = 9 << 20


def record(in_sync: str = OTHER, lost: tuple[str, ...] = (), replicas: tuple[str, ...] = (OTHER,)) -> ShardRecord:
    recovery = Recovery(epoch=EPOCH, broker=B, replica=OTHER, end=5, by="root", at_ms=1, lost=lost)
    return ShardRecord(
        epoch=EPOCH,
        leader=Leader(broker=B, replica=in_sync, boot=1),
        in_sync=(in_sync,),
        replicas=dict.fromkeys(sorted({in_sync, *replicas}), B),
        min_in_sync=1,
        recoveries=(recovery,) if lost else (),
    )


class FakeHost:
    def __init__(self) -> None:
        self.records: dict[str, ShardRecord] = {}
        self.me = SimpleNamespace(name=A)
        self.is_reachable = True

    async def read_record(self, shard: str) -> ShardRecord | None:
        if not self.is_reachable:
            raise StorageError(Thing("coordinator", "etcd"), "cannot be reached", "start it")
        return self.records.get(shard)


class World:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.host = FakeHost()
        member: Any = SimpleNamespace(state=MetaState(), call=None)
        self.recovery = MetadataRecovery(
            cast(ClusterHost, self.host), cast(MetaMember, member), cast(Coordinator, None), root, [A, B], frozenset
        )

    def make_log(self, folder: str, vhost: str = "") -> None:
        path = self.root / folder
        prepare_replica(str(path), log=bytes(16), replica=MINE, jump=0, raises_sequences=False, unix_ms=1)
        if vhost:
            (path / ".vhost").write_text(vhost)

    def aside(self) -> list[str]:
        return sorted(path.name for path in (self.root / SET_ASIDE).glob("*"))


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = World(tmp_path)
    found.make_log(META)
    return found


def test_metadata_that_was_counted_as_lost_is_set_aside_before_it_is_opened(world: World) -> None:
    world.host.records[META] = record(lost=(MINE,))
    (world.root / "users.json").write_text("[]")

    asyncio.run(world.recovery.leave_lost())

    assert world.aside() == [f"{META}.{MINE}", f"{META}.{MINE}.state"]
    assert not any((world.root / META).glob("msgs.*"))
    assert not (world.root / ANEW).exists()


def test_metadata_that_is_not_lost_stays(world: World) -> None:
    world.host.records[META] = record(in_sync=MINE)
    asyncio.run(world.recovery.leave_lost())
    world.host.is_reachable = False
    asyncio.run(world.recovery.leave_lost())

    assert world.aside() == []
    assert any((world.root / META).glob("msgs.*"))


def test_logs_are_set_aside_that_the_recovered_metadata_does_not_name(world: World) -> None:
    state = MetaState()
    names = {"kept": 1, "gone": 2, "again": 3}
    for name in names:
        world.make_log(directory_name(name), name)
    cast(Any, state).vhosts = dict.fromkeys(map(VhostName, ("kept", "again")))
    cast(Any, state).shards_of = lambda name: [f"{name}.0.1"]
    world.host.records = {"kept.0.1": record(replicas=(MINE,)), "again.0.1": record()}

    asyncio.run(world.recovery.sort_out(state))
    asyncio.run(world.recovery.sort_out(state))  # as a start after an interruption

    assert world.aside() == sorted(f"{directory_name(name)}.{MINE}" for name in ("gone", "again"))
    assert any((world.root / directory_name("kept")).glob("msgs.*"))


def test_a_request_names_a_broker_of_the_cluster(world: World) -> None:
    for request in ({}, {"broker": "mq-1"}, {"broker": 7, "accept_loss": True}, {"broker": "mq-1", "accept_loss": 1}):
        with pytest.raises(InvalidArgumentError):
            asyncio.run(world.recovery.answer(request, "root"))
    with pytest.raises(NotFoundError, match="broker 'mq-7' not found; choose one of mq-0, mq-1"):
        asyncio.run(world.recovery.answer({"broker": "mq-7", "accept_loss": True}, "root"))
