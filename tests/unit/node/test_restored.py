"""The first start on a restored directory: the records of its shards are made once, or nothing is changed."""

import asyncio
from pathlib import Path

import pytest

from penstock.cluster.coordinator import Refused, Version, Versioned
from penstock.cluster.directory import DirectoryCoordinator
from penstock.cluster.record import BrokerName, Leader, ShardRecord
from penstock.model.errors import StorageError
from penstock.native import prepare_replica
from penstock.node.config import StartError
from penstock.node.in_cluster.restored import seat_restored
from penstock.storage.cluster_backup import RESTORED, forget_restored
from penstock.storage.jsonfiles import write_json

A, B, C = (BrokerName(f"mq-{number}") for number in range(3))
SHARDS = {"meta": "meta", "shop.0.1": "a" * 40}
"""The shards and their folders."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a data directory as a restore leaves it."""
    path = tmp_path / "data"
    path.mkdir()
    listed = [
        {"name": name, "folder": folder, "brokers": [A, B, C], "epoch": prepared(path / folder, number)}
        for number, (name, folder) in enumerate(SHARDS.items())
    ]
    write_json(path / RESTORED, {"cluster": "test", "shards": listed})
    return path


def prepared(folder: Path, number: int) -> int:
    return prepare_replica(
        str(folder), log=bytes(16), replica=f"{number:032x}", jump=number, raises_sequences=True, unix_ms=1
    )


class Interrupted(DirectoryCoordinator):
    """It answers so many questions, and none after that."""

    def __init__(self, directory: Path, answers: int) -> None:
        super().__init__(directory)
        self._answers = answers

    async def read(self, shard: str) -> Versioned | None:
        self._count()
        return await super().read(shard)

    async def change(self, shard: str, base: Version | None, record: ShardRecord) -> Version | Refused:
        self._count()
        return await super().change(shard, base, record)

    def _count(self) -> None:
        if not self._answers:
            raise InterruptedError
        self._answers -= 1


def seat(directory: Path, coordinator: DirectoryCoordinator, cluster: str = "test", me: str = A) -> bool:
    return asyncio.run(seat_restored(directory, cluster, BrokerName(me), coordinator))


def record(coordinator: DirectoryCoordinator, shard: str) -> ShardRecord:
    found = asyncio.run(coordinator.read(shard))
    assert found is not None
    return found.record


def test_the_restored_replica_is_alone_in_sync_in_the_epoch_of_its_log(tmp_path: Path, directory: Path) -> None:
    coordinator = DirectoryCoordinator(tmp_path / "coordinator")

    seat(directory, coordinator)

    for number, shard in enumerate(SHARDS):
        found = record(coordinator, shard)
        assert found.in_sync == (f"{number:032x}",)
        assert found.leader == Leader(broker=A, replica=f"{number:032x}", boot=0)
        assert (found.epoch, found.min_in_sync) == ((number + 1) << 20, 1)
        assert sorted(found.replicas.values()) == [A, B, C]

    assert seat(directory, coordinator), "a start before it was forgotten"
    forget_restored(directory)
    assert not seat(directory, coordinator)


@pytest.mark.parametrize("answers", range(6))
def test_a_start_after_an_interruption_makes_the_records_that_are_missing(
    tmp_path: Path, directory: Path, answers: int
) -> None:
    interrupted = Interrupted(tmp_path / "coordinator", answers)
    with pytest.raises(InterruptedError):
        seat(directory, interrupted)
    coordinator = DirectoryCoordinator(tmp_path / "coordinator")
    assert asyncio.run(coordinator.read("meta")) is None, "other brokers would have begun"

    seat(directory, coordinator)

    for number, shard in enumerate(SHARDS):
        assert record(coordinator, shard).in_sync == (f"{number:032x}",)


def test_nothing_is_changed_where_the_cluster_exists(tmp_path: Path, directory: Path) -> None:
    coordinator = DirectoryCoordinator(tmp_path / "coordinator")
    other = Leader(broker=B, replica="b" * 32, boot=3)
    existing = ShardRecord(epoch=7, leader=other, in_sync=("b" * 32,), replicas={"b" * 32: B}, min_in_sync=1)
    asyncio.run(coordinator.change("meta", None, existing))

    with pytest.raises(StartError, match="the coordinator has a record of shard 'meta', so that its cluster exists"):
        seat(directory, coordinator)

    assert record(coordinator, "meta") == existing
    assert asyncio.run(coordinator.read("shop.0.1")) is None
    assert (directory / RESTORED).exists()


def test_a_broker_of_another_name_or_cluster_does_not_start(tmp_path: Path, directory: Path) -> None:
    coordinator = DirectoryCoordinator(tmp_path / "coordinator")

    with pytest.raises(StartError, match="was restored from a backup of cluster 'test'; set cluster to 'test'"):
        seat(directory, coordinator, cluster="other")
    with pytest.raises(StartError, match="has no place at broker 'mq-7'; choose another as cluster_broker: mq-0, mq-1"):
        seat(directory, coordinator, me="mq-7")

    assert asyncio.run(coordinator.read("meta")) is None


def test_a_file_of_another_kind_is_refused(tmp_path: Path, directory: Path) -> None:
    write_json(directory / RESTORED, {"cluster": "test", "shards": [{"name": "meta"}]})

    with pytest.raises(StorageError, match="does not list the shards of a cluster"):
        seat(directory, DirectoryCoordinator(tmp_path / "coordinator"))
