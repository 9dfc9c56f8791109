"""The shards of a cluster's backup: restored with new replicas, and refused where the parts do not belong together."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.model.errors import StorageError
from penstock.native import prepare_replica, read_replica
from penstock.storage.backup_archive import SHARDS
from penstock.storage.cluster_backup import (
    RESTORED,
    RestoredShard,
    ShardOfBackup,
    prepare_cluster,
    read_restored,
    restored_cluster,
    shards_content,
)
from penstock.storage.cluster_json import CHECKPOINT, META
from penstock.storage.directory import APPLIED, directory_name

LOGS = {META: b"m" * 16, directory_name("shop"): b"s" * 16}
BROKERS = ("mq-0", "mq-1", "mq-2")
LISTED = (
    ShardOfBackup("meta", None, LOGS[META], BROKERS),
    ShardOfBackup("shop.0.1", "shop", LOGS[directory_name("shop")], BROKERS),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the files of a backup whose logs have no messages."""
    for name, log in LOGS.items():
        make_log(tmp_path / name, log)
    (tmp_path / CHECKPOINT).touch()
    write(tmp_path, json.loads(shards_content("orders", 77, LISTED)))
    return tmp_path


def make_log(path: Path, log: bytes) -> None:
    """Make a log that ends with the epoch 2^20, of no replica."""
    prepare_replica(str(path), log=log, replica="1" * 32, jump=0, raises_sequences=False, unix_ms=1)
    (path / "replica").unlink()


def write(folder: Path, content: Any) -> None:
    (folder / SHARDS).write_text(json.dumps(content))


def test_each_log_becomes_that_of_a_new_replica(folder: Path) -> None:
    prepare_cluster(folder, ["shop"], jump_bits=1)

    restored = read_restored(folder)
    assert restored is not None
    assert (restored.cluster, restored_cluster(folder)) == ("orders", "orders")
    assert [(each.name, each.folder, each.brokers) for each in restored.shards] == [
        ("meta", META, BROKERS),
        ("shop.0.1", directory_name("shop"), BROKERS),
    ]
    assert all(each.epoch in (2 << 20, 3 << 20) for each in restored.shards)
    identities = [read_replica(str(folder / name)) for name in LOGS]
    assert len({each.replica for each in identities if each is not None}) == 2
    assert json.loads((folder / APPLIED).read_text())["installing"] == 77
    assert not (folder / SHARDS).exists()


def test_a_backup_of_one_broker_is_left_as_it_is(tmp_path: Path) -> None:
    prepare_cluster(tmp_path, ["shop"])

    assert restored_cluster(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        {"cluster": 7},
        {"position": 0},
        {"position": "77"},
        {"shards": {}},
        {"shards": [{"name": "meta"}]},
        {"shards": [{"name": "meta", "vhost": None, "log": "00", "brokers": []}]},
        {"shards": [{"name": "meta", "vhost": None, "log": "zz" * 16, "brokers": []}]},
        {"shards": [{"name": "meta", "vhost": None, "log": "00" * 16, "brokers": [7]}]},
        {"more": 1},
    ],
)
def test_a_list_that_is_not_one_is_refused(folder: Path, change: dict[str, Any]) -> None:
    write(folder, json.loads((folder / SHARDS).read_text()) | change)

    with pytest.raises(StorageError, match=r"does not list the shards of a cluster|do not belong together"):
        prepare_cluster(folder, ["shop"])


@pytest.mark.parametrize("names", [[], ["shop", "bay"], ["bay"]])
def test_other_virtual_hosts_than_the_backup_has_are_refused(folder: Path, names: list[str]) -> None:
    with pytest.raises(StorageError, match="do not belong together"):
        prepare_cluster(folder, names)


def test_a_shard_is_listed_once(folder: Path) -> None:
    content = json.loads((folder / SHARDS).read_text())
    write(folder, content | {"shards": [*content["shards"], content["shards"][0]]})

    with pytest.raises(StorageError, match="do not belong together"):
        prepare_cluster(folder, ["shop"])


def with_further(folder: Path, name: str) -> None:
    """Add a shard of the virtual host to the list of a backup, and the log of its second shard."""
    make_log(folder / directory_name("shop") / "logs" / "1", b"t" * 16)
    further = ShardOfBackup(name, "shop", b"t" * 16, BROKERS)
    write(folder, json.loads(shards_content("orders", 77, (*LISTED, further))))


def test_each_shard_of_a_virtual_host_has_its_log(folder: Path) -> None:
    with_further(folder, "shop.1.1")

    prepare_cluster(folder, ["shop"])

    restored = read_restored(folder)
    assert restored is not None
    further = restored.shards[2]
    assert (further.name, further.folder) == ("shop.1.1", f"{directory_name('shop')}/logs/1")
    identities = [read_replica(str(folder / each.folder)) for each in restored.shards]
    assert len({each.replica for each in identities if each is not None}) == 3


@pytest.mark.parametrize("name", ["shop.0.2", "shop.2.1", "shop"])
def test_shards_of_a_virtual_host_are_complete_and_different(folder: Path, name: str) -> None:
    with_further(folder, name)

    with pytest.raises(StorageError, match="do not belong together"):
        prepare_cluster(folder, ["shop"])


def test_a_log_without_a_file_and_a_backup_without_a_checkpoint_are_refused(folder: Path) -> None:
    for path in (folder / META).glob("msgs.*"):
        path.unlink()
    with pytest.raises(StorageError, match="has no log of shard 'meta'"):
        prepare_cluster(folder, ["shop"])

    (folder / CHECKPOINT).unlink()
    with pytest.raises(StorageError, match="do not belong together"):
        prepare_cluster(folder, ["shop"])


def test_the_file_of_a_restored_directory_is_checked(tmp_path: Path) -> None:
    shard = {"name": "meta", "folder": "meta", "brokers": ["mq-0"], "epoch": 7}
    (tmp_path / RESTORED).write_text(json.dumps({"cluster": "orders", "shards": [shard]}))
    found = read_restored(tmp_path)
    assert found is not None
    assert found.shards == (RestoredShard("meta", "meta", ("mq-0",), 7),)

    for wrong in ({"epoch": "7"}, {"brokers": "mq-0"}, {"more": 1}):
        (tmp_path / RESTORED).write_text(json.dumps({"cluster": "orders", "shards": [shard | wrong]}))
        with pytest.raises(StorageError, match="does not list the shards of a cluster"):
            read_restored(tmp_path)
