"""Logs of replicas that are set aside: they may have messages that their shard lost, so they are never deleted.

Logs that the disk has corrupted are kept apart: their leaders have all that they had. The newest of a shard is kept.

A log shares its folder with other files of its virtual host, so its own files are moved, one after the other. The file
with the replica's identity is the first one: what is left of an interrupted move never passes for that replica. The
next call completes it.
"""

import re
import shutil
from itertools import chain, count
from pathlib import Path
from typing import Final

from penstock.model.errors import StorageError, Thing
from penstock.storage.jsonfiles import sync_directory
from penstock.storage.vhost_files import SHARDS

SET_ASIDE: Final = "set-aside"
"""The folder in the data directory."""
_MOVING: Final = ".moving"
_CORRUPT: Final = "corrupt"
_IDENTITY: Final = "replica"
# Segments, checkpoints, and what a copy of another replica's log has.
OF_A_LOG: Final = re.compile(
    r"(msgs|checkpoint|copy)\..*|manifest(\.copy|\.tmp)?|synced|truncating(\.tmp)?|replica\.tmp|installing|moving"
)


def set_aside(directory: Path, replica: str) -> Path:
    """Move the log of a replica out of its folder, and return where it is. Blocks. Raises StorageError."""
    data, name = _named(directory)
    moving = data / SET_ASIDE / f"{name}.{replica}{_MOVING}"
    try:
        moving.mkdir(mode=0o750, parents=True, exist_ok=True)
        sync_directory(moving.parent)
        sync_directory(data)
        return _move(directory, moving)
    except OSError as error:
        raise _failed(directory, error) from error


def set_aside_corrupt(directory: Path, replica: str) -> Path:
    """Do the same with a log that the disk has corrupted. Blocks. Raises StorageError."""
    return set_aside(directory, f"{replica}.{_CORRUPT}")


def forget_corrupt(directory: Path) -> None:
    """Delete the corrupt logs that were set aside before. Blocks. Raises StorageError."""
    data, name = _named(directory)
    try:
        for corrupt in (data / SET_ASIDE).glob(f"{name}.*.{_CORRUPT}*"):
            if not corrupt.name.endswith(_MOVING):
                shutil.rmtree(corrupt)
    except OSError as error:
        raise _failed(directory, error) from error


def complete(directory: Path) -> list[Path]:
    """Complete a move that was interrupted, and return where the log is. Blocks. Raises StorageError."""
    data, name = _named(directory)
    try:
        return [_move(directory, moving) for moving in (data / SET_ASIDE).glob(f"{name}.*{_MOVING}")]
    except OSError as error:
        raise _failed(directory, error) from error


def _named(directory: Path) -> tuple[Path, str]:
    """Return the data directory, and the name of a log there, with the number of a further shard."""
    if directory.parent.name != SHARDS:
        return directory.parent, directory.name
    vhost = directory.parent.parent
    return vhost.parent, f"{vhost.name}-{directory.name}"


def _move(directory: Path, moving: Path) -> Path:
    """Move what is left of a log, and return where it is then."""
    identity = directory / _IDENTITY
    if identity.exists():
        identity.rename(moving / _IDENTITY)
        sync_directory(directory)
        sync_directory(moving)
    for file in sorted(directory.iterdir()):
        if file.is_file() and OF_A_LOG.fullmatch(file.name):
            file.rename(moving / file.name)
    sync_directory(directory)
    sync_directory(moving)
    target = _unused(moving.with_name(moving.name.removesuffix(_MOVING)))
    moving.rename(target)
    sync_directory(moving.parent)
    return target


def _unused(target: Path) -> Path:
    """Return the path, with a number if there is one already: an operator may have copied that log back."""
    numbered = (target.with_name(f"{target.name}.{number}") for number in count(2))
    return next(path for path in chain((target,), numbered) if not path.exists())


def _failed(directory: Path, error: OSError) -> StorageError:
    rule = f"cannot be set aside: {error.strerror}"
    return StorageError(Thing("log", str(directory)), rule, "move its files away while the broker is stopped")
