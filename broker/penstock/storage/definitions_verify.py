"""Checks whether a start would accept the definitions on the disk, and changes nothing.

It is for operators, before they start a broker or use a copy. It knows nothing of logs, users and policies.
"""

from dataclasses import dataclass
from pathlib import Path

from penstock.model.errors import StorageError, Thing
from penstock.storage.definitions_amqp import proof_path, readable_changes, verify_definitions
from penstock.storage.definitions_fold import Fold
from penstock.storage.directory import listed_proofs, share_lock
from penstock.storage.vhost_files import DEFINITIONS, is_marked_deleted

_DIGEST_LENGTH = 40


@dataclass(frozen=True, slots=True)
class Verified:
    """Definitions of one vhost: how many of each kind can be read, and why a start would refuse them."""

    vhost: str
    directory: str
    queues: int
    exchanges: int
    bindings: int
    error: str | None


def verify(directory: Path) -> list[Verified]:
    """Verify one vhost's folder, or all in a data directory. Raises StorageError, also while a broker uses it."""
    directory = directory.absolute()
    is_vhost = _is_vhost(directory)
    data_directory = directory.parent if is_vhost else directory
    with share_lock(data_directory):
        listed = listed_proofs(data_directory)
        names = {directory.name} if is_vhost else listed | _vhosts(directory)
        if not names:
            raise StorageError(
                Thing("directory", str(directory)),
                "holds no definitions",
                "name a data directory, or the folder of a vhost in it",
            )
        return [_verified(data_directory / name, is_proven=name in listed) for name in sorted(names)]


def _verified(directory: Path, *, is_proven: bool) -> Verified:
    path, fold, error = directory / DEFINITIONS, Fold(), None
    try:
        verify_definitions(path, is_proven=is_proven)
    except StorageError as found:
        error = str(found)
    try:
        fold.apply_all(readable_changes(path, path.read_bytes())[0])
        vhost = (directory / ".vhost").read_text(errors="replace").rstrip("\n")
    except OSError:
        vhost = ""
    return Verified(vhost, directory.name, len(fold.queues), len(fold.exchanges), len(fold.bindings), error)


def _vhosts(directory: Path) -> set[str]:
    within = (path for path in directory.iterdir() if len(path.name) == _DIGEST_LENGTH)
    return {path.name for path in within if _is_vhost(path) and not is_marked_deleted(path)}


def _is_vhost(directory: Path) -> bool:
    path = directory / DEFINITIONS
    return any(one.exists() for one in (directory / ".vhost", path, proof_path(path)))
