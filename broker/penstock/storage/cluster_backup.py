"""The part of a backup that only clusters have: the log and the state of the metadata, and the list of shards.

A restore makes each log that of a new replica, with an epoch above those of the backup. It notes the shards in
`restored.json`: the first start has their records made at the coordinator, and removes that file.
"""

import json
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.kit.clock import SystemClock
from penstock.model.errors import StorageError, Thing
from penstock.native import prepare_replica
from penstock.storage.backup_archive import SHARDS
from penstock.storage.cluster_json import CHECKPOINT, META, shard_number
from penstock.storage.directory import APPLIED, directory_name
from penstock.storage.jsonfiles import read_json, sync_directory, write_json
from penstock.storage.vhost_files import shard_directory

RESTORED: Final = "restored.json"
_JUMP_BITS: Final = 20
_WAY_OUT: Final = "use another backup; nothing was restored"


@dataclass(frozen=True, slots=True)
class ShardOfBackup:
    """A shard: its name at the coordinator, its virtual host (None for the metadata), its log's id, and its brokers."""

    name: str
    vhost: str | None
    log: bytes
    brokers: tuple[str, ...]

    @property
    def folder(self) -> str:
        """The folder of its log in a data directory."""
        if self.vhost is None:
            return META
        return str(shard_directory(Path(directory_name(self.vhost)), shard_number(self.name)))


@dataclass(frozen=True, slots=True)
class RestoredShard:
    """A shard whose log a restore has prepared: it ends with `epoch`."""

    name: str
    folder: str
    brokers: tuple[str, ...]
    epoch: int


@dataclass(frozen=True, slots=True)
class Restored:
    """The shards of a data directory whose records are not made yet."""

    cluster: str
    shards: tuple[RestoredShard, ...]


def shards_content(cluster: str, position: int, shards: Iterable[ShardOfBackup]) -> bytes:
    """Return the content of `shards.json`. The checkpoint of the metadata has that position."""
    listed = [
        {"name": each.name, "vhost": each.vhost, "log": each.log.hex(), "brokers": list(each.brokers)}
        for each in shards
    ]
    content = {"cluster": cluster, "position": position, "shards": listed}
    return (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode()


def prepare_cluster(folder: Path, vhosts: Sequence[str], jump_bits: int = _JUMP_BITS) -> None:
    """Make the logs of a restored backup those of new replicas, if it is of a cluster. Blocks. Raises StorageError."""
    path = folder / SHARDS
    try:
        found = read_json(path)
    except FileNotFoundError:
        return
    cluster, position, shards = _checked(found, path, vhosts)
    restored = [_prepared(folder, each, jump_bits) for each in shards]
    # The first start makes the other files of the metadata from its checkpoint.
    write_json(folder / APPLIED, {"position": 0, "definitions": {}, "vhost": None, "installing": position})
    listed = [
        {"name": each.name, "folder": each.folder, "brokers": list(each.brokers), "epoch": each.epoch}
        for each in restored
    ]
    write_json(folder / RESTORED, {"cluster": cluster, "shards": listed})
    path.unlink()


def restored_cluster(directory: Path) -> str | None:
    """Return the cluster of a data directory that was restored and never started; None if it is of none."""
    restored = read_restored(directory)
    return None if restored is None else restored.cluster


def read_restored(directory: Path) -> Restored | None:
    """Return the shards whose records are not made yet; None where there is nothing to do. Raises StorageError."""
    path = directory / RESTORED
    try:
        found = read_json(path)
    except FileNotFoundError:
        return None
    match found:
        case {"cluster": str(cluster), "shards": list(listed), **rest} if not rest:
            return Restored(cluster, tuple(_restored_shard(path, each) for each in listed))
    raise _wrong(path)


def forget_restored(directory: Path) -> None:
    """Note that the records of all shards are made. Blocks."""
    (directory / RESTORED).unlink()
    sync_directory(directory)


def _prepared(folder: Path, shard: ShardOfBackup, jump_bits: int) -> RestoredShard:
    path = folder / shard.folder
    if not any(path.glob("msgs.*")):
        raise StorageError(Thing("backup", str(folder)), f"has no log of shard '{shard.name}'", _WAY_OUT)
    epoch = prepare_replica(
        str(path),
        log=shard.log,
        replica=secrets.token_hex(16),
        jump=secrets.randbits(jump_bits),
        raises_sequences=shard.vhost is not None,
        unix_ms=SystemClock().now_ms(),
    )
    sync_directory(path)
    return RestoredShard(shard.name, shard.folder, shard.brokers, epoch)


def _checked(found: object, path: Path, vhosts: Sequence[str]) -> tuple[str, int, list[ShardOfBackup]]:
    """Return the cluster, the position of its checkpoint, and the shards, each in a folder of the backup."""
    match found:
        case {"cluster": str(cluster), "position": int(position), "shards": list(listed), **rest} if not rest:
            shards = [_shard(path, each) for each in listed]
        case _:
            raise _wrong(path)
    hosts = {each.vhost for each in shards}
    names, folders = {each.name for each in shards}, {each.folder for each in shards}
    counts = Counter(each.vhost for each in shards)
    has_all = all(shard_number(each.name) < counts[each.vhost] for each in shards)
    is_whole = hosts == {None, *vhosts} and len(shards) == len(names) == len(folders) and has_all
    if not is_whole or not position > 0 or not (path.parent / CHECKPOINT).exists():
        rule = "and the virtual hosts and the checkpoint of the backup do not belong together"
        raise StorageError(Thing("file", str(path)), rule, _WAY_OUT)
    return cluster, position, shards


def _shard(path: Path, found: Any) -> ShardOfBackup:
    match found:
        case {"name": str(name), "vhost": str() | None as vhost, "log": str(log), "brokers": list(brokers), **rest} if (
            not rest and all(isinstance(broker, str) for broker in brokers)
        ):
            return ShardOfBackup(name, vhost, _id(path, log), tuple(brokers))
    raise _wrong(path)


def _id(path: Path, text: str) -> bytes:
    try:
        found = bytes.fromhex(text)
    except ValueError as error:
        raise _wrong(path) from error
    if len(found) != 16:
        raise _wrong(path)
    return found


def _restored_shard(path: Path, found: Any) -> RestoredShard:
    match found:
        case {"name": str(name), "folder": str(folder), "brokers": list(brokers), "epoch": int(epoch), **rest} if (
            not rest and all(isinstance(broker, str) for broker in brokers)
        ):
            return RestoredShard(name, folder, tuple(brokers), epoch)
    raise _wrong(path)


def _wrong(path: Path) -> StorageError:
    return StorageError(Thing("file", str(path)), "does not list the shards of a cluster", _WAY_OUT)
