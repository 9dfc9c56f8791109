"""The directory of one vhost: its name, its definitions, its policies.

Its creation is complete on the disk before `vhosts.json` names it; its deletion begins after `vhosts.json` dropped it.
Meanwhile it is marked by `.deleted`: a marked directory that is not named is garbage. A missing file is an accident,
never a reason to start afresh.
"""

import contextlib
import os
import re
import shutil
from pathlib import Path

from penstock.model.errors import StorageError, Thing
from penstock.storage.amqp_frames import Change
from penstock.storage.definitions_amqp import DefinitionsFile, create_definitions, proof_path
from penstock.storage.definitions_proof import PROOF
from penstock.storage.jsonfiles import sync_directory, write_file, write_json

DEFINITIONS = "definitions.amqp"
SHARDS = "logs"
"""The folder with the folders of further shards, named by their numbers."""
_DELETED = ".deleted"
# Segments, rewritten ones too, and checkpoints.
_OF_A_LOG = re.compile(r"msgs\.\d{10,}(\.\d+)?|checkpoint\.\d{10,}")


def shard_directory(path: Path, shard: int) -> Path:
    """Return the folder of a shard's log; the first one is in the vhost's directory."""
    return path / SHARDS / str(shard) if shard else path


def shard_directories(path: Path) -> list[Path]:
    """Return the folders of the logs of a vhost's shards that are there, in their order. Blocks."""
    numbers = sorted(int(found.name) for found in (path / SHARDS).glob("*") if found.name.isdecimal())
    return [path, *(shard_directory(path, number) for number in numbers if number)]


def make_shard_directory(path: Path, shard: int) -> Path:
    """Make the folder of a shard's log, whose name is on the disk when this returns. Blocks. Raises StorageError."""
    directory = shard_directory(path, shard)
    try:
        for folder in (directory.parent, directory) if shard else ():
            folder.mkdir(mode=0o750, exist_ok=True)
            # An earlier attempt may have ended before its sync.
            sync_directory(folder.parent)
    except OSError as error:
        raise _unusable(directory, "made", error) from error
    return directory


def create_vhost_directory(path: Path, name: str) -> None:
    """Make an empty directory; first remove the rest of an interrupted creation or deletion. Blocks."""
    try:
        if path.exists():
            _check_rubbish(path, name)
            shutil.rmtree(path)
        path.mkdir(mode=0o750)
        mark_deleted(path)  # until `vhosts.json` names it
        write_file(path / ".vhost", name.encode())
        write_json(path / "policies.json", [])
        create_definitions(path / DEFINITIONS)
        sync_directory(path.parent)
    except OSError as error:
        raise _unusable(path, "made", error) from error


def open_vhost_directory(
    path: Path, name: str, *, is_proven: bool = False, is_named: bool = True
) -> tuple[DefinitionsFile, list[Change]]:
    """Read the directory and refuse unsupported content. Blocks. Raises StorageError.

    `is_proven` says that its definitions have a proof, and that its log was opened before; `is_named` that
    `vhosts.json` names it, so that its mark goes.
    """
    if not path.is_dir():
        raise StorageError(
            Thing("vhost", name), f"has no directory {path}", "restore it, or remove the vhost from vhosts.json"
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
        raise StorageError(Thing("vhost", name), f"has a directory {path} of vhost {shown!r}", "restore the right one")
    # A log without live messages may have no segment, but it has a checkpoint. Other files, as indexes, do not count.
    if is_proven and not any(_OF_A_LOG.fullmatch(found.name) for found in path.glob("*")):
        raise StorageError(
            Thing("log", str(path)),
            "has no segment (msgs.*) and no checkpoint, but had messages",
            f"restore its files, for example from a backup; to start without messages, remove {path.name}/{PROOF} "
            "from `files` in node.json",
        )
    if is_named:
        unmark_deleted(path)
    definitions = path / DEFINITIONS
    if not is_proven and not definitions.exists() and not proof_path(definitions).exists() and not _has_log(path):
        create_definitions(definitions)  # an earlier version was interrupted between `vhosts.json` and this file
    return DefinitionsFile.open(definitions, is_proven=is_proven)


def delete_vhost_directory(path: Path) -> None:
    """Delete the directory; a missing one is fine. Blocks."""
    try:
        for entry in list(os.scandir(path)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif entry.name != _DELETED:
                Path(entry.path).unlink(missing_ok=True)
        # The mark goes last: a failed removal leaves a directory that is still known as garbage.
        (path / _DELETED).unlink(missing_ok=True)
        path.rmdir()
        sync_directory(path.parent)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unusable(path, "removed", error) from error


def remove_strays(data_directory: Path, names_of_directories: set[str]) -> list[str]:
    """Remove vhost directories left by an interrupted creation or deletion. Blocks.

    Only a directory that looks like one goes; if it cannot be removed it waits for the next start.
    """
    removed: list[str] = []
    for entry in os.scandir(data_directory):
        is_vhost = len(entry.name) == 40 and entry.is_dir(follow_symlinks=False)
        if is_vhost and entry.name not in names_of_directories and is_marked_deleted(Path(entry.path)):
            with contextlib.suppress(StorageError):
                delete_vhost_directory(Path(entry.path))
                removed.append(entry.name)
    return removed


def mark_deleted(path: Path) -> None:
    """Mark a directory, before its files go, so that the next start can finish the deletion."""
    write_file(path / _DELETED, b"")


def is_marked_deleted(path: Path) -> bool:
    return (path / _DELETED).exists()


def unmark_deleted(path: Path) -> None:
    """Remove the mark of a named vhost.

    Its creation was complete, or its deletion was interrupted before it was answered.
    """
    if is_marked_deleted(path):
        (path / _DELETED).unlink()
        sync_directory(path)


def _has_log(path: Path) -> bool:
    return any(any(path.glob(pattern)) for pattern in ("msgs.*", "checkpoint.*", "shards/*", "logs/*"))


def _check_rubbish(path: Path, name: str) -> None:
    is_used = (path / DEFINITIONS).exists() or _has_log(path)
    if is_used and not is_marked_deleted(path):
        raise StorageError(
            Thing("vhost", name),
            f"is not in vhosts.json, yet its directory {path} holds data",
            "name it in vhosts.json again while the broker is stopped, or move the directory away",
        )


def _unusable(path: Path, action: str, error: OSError) -> StorageError:
    return StorageError(
        Thing("directory", str(path)), f"cannot be {action}: {error.strerror}", "make it writable for the broker's user"
    )
