"""Inspects, verifies and repairs the log of a stopped vhost.

Queues have the names of the definitions beside the log, or numbers when those cannot be read.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.model.errors import StorageError, Thing
from penstock.model.records import PRIORITY_SHIFT, TURN_NUMBERS, TURN_SHIFT, Queue
from penstock.native import CorruptRecord, SegmentReport, inspect_log, repair_log
from penstock.storage.amqp_frames import Declared
from penstock.storage.definitions_amqp import read_changes
from penstock.storage.directory import hold_lock, share_lock
from penstock.storage.vhost_files import SHARDS

# The segment that a repair appends to: small, because it holds a few settlements.
_SEGMENT_BYTES_MIN = 1024 * 1024
_SEGMENT_BYTES_MAX = 64 * 1024 * 1024
# In a vhost's folder: its further shards, each in a folder named by its number, and the logs of queues that have their
# own, named by the queue's number.
_FOLDERS = (SHARDS, "shards")
# Any of these identifies a directory with a log.
_OF_A_LOG = ("definitions.amqp", "msgs.*", "checkpoint.*")
# The name of a virtual host's directory is a digest.
_DIGEST_LENGTH = 40
# A data directory, a virtual host, `logs` or `shards`, a log.
_DEPTH_MAX = 3


@dataclass(frozen=True, slots=True)
class Dropped:
    """A message that could not be read."""

    queue: str
    sequence: int
    error: str


@dataclass(frozen=True, slots=True)
class Repaired:
    """Result of a repair; `set_aside` are the files that no start reads any more."""

    dropped: tuple[Dropped, ...]
    set_aside: tuple[str, ...]


class _Names:
    """The queues that a virtual host has or had, by their ids. A queue with priorities has several."""

    def __init__(self, queues: Iterable[Queue]) -> None:
        self._queues = sorted(queues, key=lambda queue: queue.id)

    def of(self, queue_id: int, sequence: int) -> tuple[str, int]:
        """Return the name of a queue, and a message's sequence as its consumers know it."""
        lane, turn = 0, 0
        if queue_id >= TURN_NUMBERS:
            # A lane of keys that take turns: the number of its queue, and that of the lane in the last byte.
            (queue_id, lane), turn = divmod(queue_id - TURN_NUMBERS, 256), 1 << TURN_SHIFT
        at = bisect_right(self._queues, queue_id, key=lambda queue: queue.id)
        queue = self._queues[at - 1] if at else None
        if queue is None or queue_id > queue.last_id:
            return f"(queue {queue_id})", sequence
        return queue.name, (lane if turn else queue_id - queue.id) << PRIORITY_SHIFT | turn | sequence


def inspect(directory: Path, *, verify: bool) -> list[dict[str, Any]]:
    """Return one entry per segment; with `verify` check every byte of every record.

    A data directory stands for all its virtual hosts; the further shards of a virtual host, and the own logs of its
    queues, come after its log.
    Raises StorageError, also while a broker uses the directory.
    """
    segments: list[dict[str, Any]] = []
    vhosts = _vhosts(directory)
    with share_lock(_data_directory(directory)):
        for vhost in vhosts:
            segments += _inspect_vhost(directory, vhost, verify)
    return segments


def _inspect_vhost(directory: Path, vhost: Path, verify: bool) -> list[dict[str, Any]]:
    segments: list[dict[str, Any]] = []
    names = _queue_names(vhost)
    for log in _logs(vhost):
        found = inspect_log(str(log), verify=verify, shard=_shard(log))
        segments += (_entry(segment, _place(directory, log, segment.file), names) for segment in found)
    return segments


def _entry(segment: SegmentReport, file: str, names: _Names) -> dict[str, Any]:
    return {
        "file": file,
        "first_position": segment.first_position,
        "bytes": segment.bytes,
        "records": segment.records,
        "messages": segment.messages,
        "settles": segment.settles,
        "error": segment.error,
        "error_at": segment.error_at,
        "corrupt": [_corrupt_entry(corrupt, names) for corrupt in segment.corrupt],
    }


def _corrupt_entry(corrupt: CorruptRecord, names: _Names) -> dict[str, Any]:
    return {
        "at": corrupt.at,
        "position": corrupt.position,
        "error": corrupt.error,
        "messages": [
            {"queue": name, "sequence": sequence}
            for name, sequence in (names.of(message.queue_id, message.sequence) for message in corrupt.messages)
        ],
        "queues": sorted({names.of(message.queue_id, 0)[0] for message in corrupt.messages}),
    }


def repair(directory: Path) -> Repaired:
    """Drop live messages that cannot be read. Raises StorageError, also while a broker uses the directory."""
    dropped: list[Dropped] = []
    set_aside: list[str] = []
    vhosts = _vhosts(directory)
    with hold_lock(_data_directory(directory)):
        for vhost in vhosts:
            names = _queue_names(vhost)
            for log in _logs(vhost):
                found = repair_log(
                    str(log),
                    segment_bytes_min=_SEGMENT_BYTES_MIN,
                    segment_bytes_max=_SEGMENT_BYTES_MAX,
                    shard=_shard(log),
                )
                dropped += (Dropped(*names.of(each.queue_id, each.sequence), each.error) for each in found.dropped)
                set_aside += (_place(directory, log, file) for file in found.set_aside)
    return Repaired(tuple(dropped), tuple(set_aside))


def _vhosts(directory: Path) -> list[Path]:
    """Return the directory itself when it has a log, else the ones in it that have. Raises StorageError without any."""
    if _has_log(directory):
        return [directory]
    within = sorted(path for path in directory.iterdir() if len(path.name) == _DIGEST_LENGTH and _has_log(path))
    if not within:
        raise StorageError(
            Thing("directory", str(directory)),
            "has no log: neither segments nor directories of virtual hosts",
            "name a data directory, or the directory of a virtual host in it",
        )
    return within


def _has_log(path: Path) -> bool:
    return path.is_dir() and any(next(path.glob(pattern), None) for pattern in _OF_A_LOG)


def _data_directory(directory: Path) -> Path:
    """Return the nearest directory with a lock, a broker's data directory. Without one nothing can use the log."""
    directory = directory.absolute()
    above = [directory, *directory.parents[:_DEPTH_MAX]]
    return next((path for path in above if (path / ".lock").exists()), directory)


def further_logs(directory: Path) -> list[Path]:
    """Return the directories of a vhost's further shards, and of the own logs of its queues, by number."""
    found: list[Path] = []
    for folder in (directory / name for name in _FOLDERS):
        own = [path for path in folder.iterdir() if path.name.isdecimal()] if folder.is_dir() else []
        found += sorted(own, key=lambda path: int(path.name))
    return found


def _logs(directory: Path) -> list[Path]:
    return [directory, *further_logs(directory)]


def _shard(log: Path) -> int:
    """Return the shard whose log a folder has; 0 also for the log of a queue."""
    return int(log.name) if log.parent.name == SHARDS and log.name.isdecimal() else 0


def _place(directory: Path, log: Path, file: str) -> str:
    return file if log == directory else str(log.relative_to(directory) / file)


def _queue_names(directory: Path) -> _Names:
    """Return queue names by id.

    Ids are never reused, so deleted queues keep their names as long as the file has them.
    """
    path = directory / "definitions.amqp"
    try:
        changes, _ = read_changes(path, path.read_bytes())
    except (OSError, StorageError):
        return _Names(())
    things = (change.thing for change in changes if isinstance(change, Declared))
    return _Names(thing for thing in things if isinstance(thing, Queue))
