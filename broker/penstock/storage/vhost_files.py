"""The directory of one vhost: its name, its definitions, its policies. Making one is complete on the disk before
`vhosts.json` names it; deleting one happens after `vhosts.json` forgot it, so a directory nobody names is rubbish."""

import os
import shutil
from pathlib import Path

from penstock.model.errors import StorageError, Thing
from penstock.storage.amqp_frames import Change
from penstock.storage.definitions_amqp import DefinitionsFile
from penstock.storage.jsonfiles import sync_directory, write_file, write_json


def create_vhost_directory(path: Path, name: str) -> None:
    """Makes an empty one; what an interrupted creation or deletion left there goes first. Blocks."""
    try:
        if path.exists():
            _check_rubbish(path, name)
            shutil.rmtree(path)
        path.mkdir(mode=0o750)
        write_file(path / ".vhost", name.encode())
        write_json(path / "policies.json", [])
        sync_directory(path.parent)
    except OSError as error:
        raise _unusable(path, "made", error) from error


def open_vhost_directory(path: Path, name: str) -> tuple[DefinitionsFile, list[Change]]:
    """Reads what is there and refuses what cannot be honoured. Blocks. Raises StorageError."""
    if not path.is_dir():
        raise StorageError(
            Thing("vhost", name), f"has no directory {path}", "put it back, or remove the vhost from vhosts.json"
        )
    try:
        found = (path / ".vhost").read_bytes()
    except FileNotFoundError:
        write_file(path / ".vhost", name.encode())
        found = name.encode()
    except OSError as error:
        raise _unusable(path, "read", error) from error
    if found.rstrip(b"\n") != name.encode():
        shown = found.decode("utf-8", "replace")
        raise StorageError(
            Thing("vhost", name), f"has a directory {path} of vhost {shown!r}", "put the right one there"
        )
    _unmark_deleted(path)
    return DefinitionsFile.open(path / "definitions.amqp")


def delete_vhost_directory(path: Path) -> None:
    """Blocks. A directory that is gone already is fine."""
    try:
        shutil.rmtree(path)
        sync_directory(path.parent)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unusable(path, "removed", error) from error


def remove_strays(data_directory: Path, names_of_directories: set[str]) -> list[str]:
    """Removes vhost directories that an interrupted deletion left. Blocks. Only what has the look of one goes."""
    removed: list[str] = []
    for entry in os.scandir(data_directory):
        is_vhost = len(entry.name) == 40 and entry.is_dir(follow_symlinks=False)
        if is_vhost and entry.name not in names_of_directories and (Path(entry.path) / ".deleted").exists():
            delete_vhost_directory(Path(entry.path))
            removed.append(entry.name)
    return removed


def mark_deleted(path: Path) -> None:
    """Says, before its files go, that this directory may be finished off at the next start."""
    write_file(path / ".deleted", b"")


def _unmark_deleted(path: Path) -> None:
    """The vhost is named, so its deletion was interrupted before it was answered: it is not deleted."""
    if (path / ".deleted").exists():
        (path / ".deleted").unlink()
        sync_directory(path)


def _check_rubbish(path: Path, name: str) -> None:
    is_used = (path / "definitions.amqp").exists() or any(path.glob("msgs.*"))
    if is_used and not (path / ".deleted").exists():
        raise StorageError(
            Thing("vhost", name),
            f"is not in vhosts.json, yet its directory {path} holds data",
            "name it in vhosts.json again while the broker is down, or move the directory away",
        )


def _unusable(path: Path, action: str, error: OSError) -> StorageError:
    return StorageError(
        Thing("directory", str(path)), f"cannot be {action}: {error.strerror}", "make it writable for the broker's user"
    )
