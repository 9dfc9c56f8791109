"""Accepts a definitions file as it is, for operators who have no better copy.

The readable part stays and gets a new proof. The next start deletes the queues that it no longer names, with their
messages, so no start does this by itself. The original file stays beside it.
"""

from dataclasses import dataclass
from pathlib import Path

from penstock.model.errors import StorageError, Thing
from penstock.storage.definitions_amqp import create_definitions, readable_changes
from penstock.storage.definitions_fold import Fold
from penstock.storage.directory import hold_lock
from penstock.storage.jsonfiles import write_file
from penstock.storage.vhost_files import DEFINITIONS

_AS_IT_WAS = ".corrupt"


@dataclass(frozen=True, slots=True)
class Readable:
    """The readable part of a definitions file; `problem` is the error at the first place that cannot be read."""

    queues: tuple[str, ...]
    exchanges: tuple[str, ...]
    binding_count: int
    problem: str | None


def look(directory: Path) -> Readable:
    """Read a vhost's folder. Raises StorageError."""
    return _read(directory)[0]


def accept(directory: Path) -> Readable:
    """Accept the file. Raises StorageError, also while a broker uses the directory."""
    with hold_lock(directory.absolute().parent):
        readable, fold, content = _read(directory)
        path = directory / DEFINITIONS
        if content:
            write_file(path.with_name(DEFINITIONS + _AS_IT_WAS), content)
        create_definitions(path, fold.changes())
    return readable


def _read(directory: Path) -> tuple[Readable, Fold, bytes]:
    path, fold = directory / DEFINITIONS, Fold()
    if not (directory / ".vhost").exists():
        raise StorageError(
            Thing("directory", str(directory)), "is not the folder of a vhost", "name the folder of a vhost"
        )
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Readable((), (), 0, f"{path} is missing"), fold, b""
    except OSError as error:
        raise StorageError(
            Thing("file", str(path)), f"cannot be read: {error.strerror}", "repair the disk, or restore a copy"
        ) from error
    changes, problem = readable_changes(path, content)
    fold.apply_all(changes)
    readable = Readable(
        tuple(fold.queues), tuple(fold.exchanges), len(fold.bindings), None if problem is None else str(problem)
    )
    return readable, fold, content
