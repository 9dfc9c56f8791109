"""Looks into the log of a stopped vhost, for people who want to know what is in it or whether it is whole, and mends
it. Queues are named as the definitions beside the log name them, or by number when those cannot be read."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.model.errors import StorageError, Thing
from penstock.model.records import Queue
from penstock.native import StorageError as NativeStorageError
from penstock.native import inspect_log, repair_log
from penstock.storage.amqp_frames import Declared
from penstock.storage.definitions_amqp import read_changes
from penstock.storage.directory import hold_lock

# The segment that a repair appends to: small, for it holds a few settlements.
_SEGMENT_BYTES_MIN = 1024 * 1024
_SEGMENT_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Dropped:
    """A message that could not be read."""

    queue: str
    sequence: int
    error: str


@dataclass(frozen=True, slots=True)
class Repaired:
    """`set_aside` are the files that no start reads any more."""

    dropped: tuple[Dropped, ...]
    set_aside: tuple[str, ...]


def inspect(directory: Path, *, verify: bool) -> list[dict[str, Any]]:
    """One entry a segment; with `verify` every byte of every record is checked. Raises StorageError."""
    with _faults(directory, "read"):
        segments = inspect_log(str(directory), verify=verify)
    names = _queue_names(directory)
    for damaged in (each for segment in segments for each in segment["damaged"]):
        targets: list[tuple[int, int]] = damaged.pop("targets")
        damaged["messages"] = [
            {"queue": _name(names, queue_id), "sequence": sequence} for queue_id, sequence in targets
        ]
        damaged["queues"] = sorted({_name(names, queue_id) for queue_id, _ in targets})
    return segments


def repair(directory: Path) -> Repaired:
    """Drops what lives and cannot be read. Raises StorageError, also while a broker uses the directory."""
    names = _queue_names(directory)
    with hold_lock(directory.absolute().parent), _faults(directory, "repaired"):
        dropped, set_aside = repair_log(
            str(directory), segment_bytes_min=_SEGMENT_BYTES_MIN, segment_bytes_max=_SEGMENT_BYTES_MAX
        )
    found = (Dropped(_name(names, queue_id), sequence, error) for queue_id, sequence, error in dropped)
    return Repaired(tuple(found), tuple(set_aside))


def _queue_names(directory: Path) -> dict[int, str]:
    """Ids never name another queue, so deleted ones keep their names as long as the file has them."""
    path = directory / "definitions.amqp"
    try:
        changes, _ = read_changes(path, path.read_bytes())
    except (OSError, StorageError):
        return {}
    things = (change.thing for change in changes if isinstance(change, Declared))
    return {thing.id: thing.name for thing in things if isinstance(thing, Queue)}


def _name(names: dict[int, str], queue_id: int) -> str:
    return names.get(queue_id, f"(queue {queue_id})")


@contextmanager
def _faults(directory: Path, action: str) -> Iterator[None]:
    try:
        yield
    except NativeStorageError as error:
        raise StorageError(
            Thing("log", str(directory)), f"cannot be {action}: {error}", "name the directory of a vhost"
        ) from error
