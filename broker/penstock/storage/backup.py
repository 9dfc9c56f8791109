"""Backup and restore of a data directory.

`backup.json` is the last file that a backup gets, and names all the others with their sizes: without it, or without one
of them, a copy is not whole and is not restored. A backup and the broker share no file, so that neither can change the
other; restoring copies.
"""

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from penstock.model.errors import PreconditionFailedError, StorageError, Thing
from penstock.native import BackupFile
from penstock.storage.backup_archive import SHARDS
from penstock.storage.cluster_backup import ShardOfBackup, shards_content
from penstock.storage.cluster_json import CHECKPOINT, META
from penstock.storage.deletions_json import DELETIONS, Deletion, deletions_content
from penstock.storage.directory import FORMATS, VHOSTS, DataDirectory, directory_name
from penstock.storage.filled import complete_data_directory, filled_data_directory
from penstock.storage.jsonfiles import read_json, sync_directory, write_file, write_json
from penstock.storage.limits_json import USER_LIMITS
from penstock.storage.new_directory import RESTORE, new_directory
from penstock.storage.records_json import (
    UserRecord,
    read_users,
    read_vhosts,
    users_content,
    vhosts_content,
    within_vhosts,
)

WRITERS: Final = 4
SUMMARY: Final = "backup.json"
_CLUSTER: Final = "cluster"
_KEYS: Final = {"format", "vhosts", "files", _CLUSTER}


class OpenLog(Protocol):
    """A vhost's log, to be read."""

    @property
    def files(self) -> list[BackupFile]: ...
    def read(self, file: int, at: int, length: int) -> bytes: ...
    def close(self) -> None: ...


class Log(Protocol):
    @property
    def position(self) -> int: ...
    def write(self, directory: str) -> None: ...
    def open(self) -> OpenLog: ...


class ClosableLog(Log, Protocol):
    """One that was neither written nor opened must be closed."""

    def close(self) -> None: ...


class Definitions(Protocol):
    """The definitions and their proof, which are written to files or read."""

    @property
    def sizes(self) -> tuple[int, int]: ...
    def write(self, path: Path) -> None: ...
    def read(self) -> tuple[bytes, bytes]: ...


@dataclass(frozen=True, slots=True)
class VhostCopy:
    """One vhost, fixed at one point."""

    name: str
    definitions: Definitions
    log: Log


@dataclass(frozen=True, slots=True)
class MetadataCopy:
    """The metadata of a cluster at one point: its log, the state at a position of it, and all shards of the backup."""

    cluster: str
    shards: tuple[ShardOfBackup, ...]
    position: int
    checkpoint: bytes
    log: ClosableLog

    def files(self) -> dict[str, bytes]:
        """Return the content of the files beside the log, by name."""
        return {SHARDS: shards_content(self.cluster, self.position, self.shards), CHECKPOINT: self.checkpoint}


@dataclass(frozen=True, slots=True)
class UsersCopy:
    """The users, their limits, and the deletions that had begun, at one point; in a cluster, its metadata, too.

    Where a deletion had begun, the files may show it half done.
    """

    users: tuple[UserRecord, ...]
    limits: bytes | None
    begun: tuple[Deletion, ...]
    metadata: MetadataCopy | None = None


def copy_users(data: DataDirectory) -> UsersCopy:
    """Return the users as they are now. Blocks. Raises StorageError.

    A deletion that ends meanwhile may be half in what was read, so the files are read again.
    """
    while True:
        ended_count = data.deletions.ended_count
        users = read_users(data.users_file) or []
        limits = data.user_limits_file.read_bytes() if data.user_limits_file.exists() else None
        begun = data.deletions.begun
        if data.deletions.ended_count == ended_count:
            return UsersCopy(tuple(users), limits, begun)


def write_backup(
    data: DataDirectory,
    target: Path,
    vhosts: Sequence[VhostCopy],
    users: UsersCopy,
    written: Callable[[VhostCopy], None] = lambda _: None,
) -> int:
    """Return the bytes of all files.

    The users are of the point at which the vhosts were fixed: a vhost or user that is deleted and made anew while files
    are copied would have the messages of the old one and the permissions of the new one.

    Vhosts are copied by several threads, so that one on a disk that hangs holds up no other; `written` is called on
    such a thread when a vhost's copy is complete. Blocks until the backup is on the disk. Raises StorageError, and
    PreconditionFailedError when the directory holds something; what was begun is removed then.
    """
    with new_directory(target):
        _write_vhosts(data, target, vhosts, written)
        for name, content in users_files(users, [vhost.name for vhost in vhosts]).items():
            write_file(target / name, content)
        if users.metadata is not None:
            (target / META).mkdir(mode=0o750)
            users.metadata.log.write(str(target / META))
        places = [{"name": vhost.name, "position": vhost.log.position} for vhost in vhosts]
        of_cluster = {} if users.metadata is None else {_CLUSTER: users.metadata.cluster}
        write_json(target / SUMMARY, {"format": data.format, "vhosts": places, "files": _sizes(target)} | of_cluster)
        sync_directory(target.parent)
        return sum(_sizes(target).values())


def users_files(copy: UsersCopy, vhosts: Sequence[str]) -> dict[str, bytes]:
    """Return the content of a backup's files that are of no vhost, by name.

    The users are without permissions in vhosts that are not in the backup: one made later would inherit them.
    """
    files = {"users.json": users_content(within_vhosts(user, set(vhosts)) for user in copy.users)}
    if copy.limits is not None:
        files[USER_LIMITS] = copy.limits
    if copy.begun:
        files[DELETIONS] = deletions_content(copy.begun)
    if copy.metadata is not None:
        files |= copy.metadata.files()
    return files | {VHOSTS: vhosts_content(vhosts)}


def restore_backup(source: Path, target: Path) -> list[str]:
    """Make a data directory of a backup, and return the names of its vhosts.

    Blocks. Raises StorageError, and PreconditionFailedError when there is no whole backup or the new directory holds
    something.
    """
    format_, names = _checked_summary(source)
    with filled_data_directory(target, RESTORE) as folder:
        for name in names:
            shutil.copytree(source / directory_name(name), folder / directory_name(name))
        # Written as new files, because a copy keeps the mode of its source: only the broker's user may read digests of
        # passwords. Deletions that had begun are completed by the first start.
        for file in ("users.json", USER_LIMITS, DELETIONS, SHARDS, CHECKPOINT):
            if file == "users.json" or (source / file).exists():
                write_file(folder / file, (source / file).read_bytes())
        if (source / META).exists():
            shutil.copytree(source / META, folder / META)
        complete_data_directory(folder, names, format_)
    return names


def _write_vhosts(
    data: DataDirectory, target: Path, vhosts: Sequence[VhostCopy], written: Callable[[VhostCopy], None]
) -> None:
    def write(vhost: VhostCopy) -> None:
        _write_vhost(data.vhost_directory(vhost.name), target / directory_name(vhost.name), vhost)
        written(vhost)

    threads = ThreadPoolExecutor(WRITERS, thread_name_prefix="backup")
    try:
        for writing in [threads.submit(write, vhost) for vhost in vhosts]:
            writing.result()
    finally:  # the directory of a backup that failed is removed after its last writer has ended
        threads.shutdown(wait=True, cancel_futures=True)


def _write_vhost(source: Path, target: Path, vhost: VhostCopy) -> None:
    target.mkdir(mode=0o750)
    for path in sorted((source / ".vhost", *source.glob("*.json"))):
        write_file(target / path.name, path.read_bytes())
    vhost.definitions.write(target / "definitions.amqp")
    vhost.log.write(str(target))


def _sizes(directory: Path) -> dict[str, int]:
    files = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {str(path.relative_to(directory)): path.stat().st_size for path in files}


def _checked_summary(source: Path) -> tuple[int, list[str]]:
    """Return the format and the names of the vhosts of a backup that is whole."""
    try:
        summary = read_json(source / SUMMARY)
    except FileNotFoundError:
        raise PreconditionFailedError(
            Thing("backup", str(source)), f"is not complete: {SUMMARY} is missing", "name a complete backup"
        ) from None
    if not isinstance(summary, dict) or summary.get("format") not in FORMATS:
        raise PreconditionFailedError(
            Thing("backup", str(source)),
            f"has a format that this version does not know: it knows {FORMATS[0]} to {FORMATS[-1]}",
            "restore it with the version that wrote it, or a newer one",
        )
    vhosts, sizes = summary.get("vhosts"), summary.get("files")
    names = [vhost.get("name") if isinstance(vhost, dict) else None for vhost in vhosts] if vhosts else []
    # With a flipped bit in a key the backup would restore as an empty one, or without its files being checked.
    is_of_cluster = (source / SHARDS).exists() and (source / META).is_dir()
    if (
        not summary.keys() <= _KEYS
        or is_of_cluster != (_CLUSTER in summary)
        or names != read_vhosts(source / "vhosts.json")
        or not isinstance(sizes, dict)
    ):
        raise StorageError(
            Thing("file", str(source / SUMMARY)),
            "lists no files, has unknown keys, or differs from its vhosts.json",
            "copy both from the backup again",
        )
    _check_files(source, sizes)
    return summary["format"], [str(name) for name in names]


def _check_files(source: Path, sizes: dict[str, object]) -> None:
    for name, size in sizes.items():
        path = source / name
        found = path.stat().st_size if path.is_file() else None
        if found != size:
            rule = "is missing" if found is None else f"has {found} bytes, and had {size} when the backup was made"
            raise StorageError(
                Thing("file", str(path)), rule, "copy the backup again, or restore another one; nothing was restored"
            )
