"""The deletion of the log of a replica that has left its shard.

A log shares its folder with other files of its virtual host, so its own files are deleted, one after the other. The
file with the replica's identity is renamed first: what is left of an interrupted deletion never passes for that
replica, and the next call completes it.
"""

from pathlib import Path
from typing import Final

from penstock.model.errors import StorageError, Thing
from penstock.storage.jsonfiles import sync_directory
from penstock.storage.setting_aside import OF_A_LOG

_IDENTITY: Final = "replica"
_LEFT: Final = "replica.left"


def delete_log(directory: Path) -> None:
    """Delete the log of a replica for good. Blocks. Raises StorageError."""
    try:
        (directory / _IDENTITY).rename(directory / _LEFT)
        sync_directory(directory)
    except OSError as error:
        raise _failed(directory, error) from error
    complete_deletion(directory)


def complete_deletion(directory: Path) -> None:
    """Complete a deletion that was interrupted. Blocks. Raises StorageError."""
    left = directory / _LEFT
    try:
        if not left.exists():
            return
        for file in sorted(directory.iterdir()):
            if file.is_file() and OF_A_LOG.fullmatch(file.name):
                file.unlink()
        sync_directory(directory)
        left.unlink()
        sync_directory(directory)
    except OSError as error:
        raise _failed(directory, error) from error


def _failed(directory: Path, error: OSError) -> StorageError:
    rule = f"cannot be deleted: {error.strerror}"
    return StorageError(Thing("log", str(directory)), rule, "check its rights, and start the broker again")
