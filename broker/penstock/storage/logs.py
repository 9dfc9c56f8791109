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
# In a vhost's folder: the logs that queues have of their own, each in a folder named by the queue's number.
OWN_LOGS = "shards"


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
    """One entry a segment; with `verify` every byte of every record is checked. The logs that queues of the vhost
    have of their own come after its own. Raises StorageError."""
    segments: list[dict[str, Any]] = []
    for log in _logs(directory):
        with _faults(log, "read"):
            found = inspect_log(str(log), verify=verify)
        segments += ({**segment, "file": _place(directory, log, segment["file"])} for segment in found)
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
    dropped: list[Dropped] = []
    set_aside: list[str] = []
    with hold_lock(directory.absolute().parent):
        for log in _logs(directory):
            with _faults(log, "repaired"):
                found, files = repair_log(
                    str(log), segment_bytes_min=_SEGMENT_BYTES_MIN, segment_bytes_max=_SEGMENT_BYTES_MAX
                )
            dropped += (Dropped(_name(names, queue_id), sequence, error) for queue_id, sequence, error in found)
            set_aside += (_place(directory, log, file) for file in files)
    return Repaired(tuple(dropped), tuple(set_aside))


def _logs(directory: Path) -> list[Path]:
    """The vhost's log, and those of its queues' own by their numbers."""
    folder = directory / OWN_LOGS
    own = [path for path in folder.iterdir() if path.name.isdecimal()] if folder.is_dir() else []
    return [directory, *sorted(own, key=lambda path: int(path.name))]


def _place(directory: Path, log: Path, file: str) -> str:
    return file if log == directory else str(log.relative_to(directory) / file)


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
