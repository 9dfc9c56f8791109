"""The manifest: the files of an archive and the offsets of each. Files that it does not name are not part of it.

Invariants: a partition's files are in the order of their offsets and never overlap. Where one ends and the
next begins later, the stream had no messages. Pure: it does not know where manifests are stored.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, Final

from penstock.archive.errors import ArchiveError

__all__ = [
    "ARCHIVE_GROUP",
    "VERSION",
    "ArchivedFile",
    "ArchivedPartition",
    "Live",
    "Manifest",
    "append_run",
    "belongs",
    "file_since",
    "files_from",
    "parse_manifest",
    "rows_of",
    "runs_of",
    "runs_within",
]

# 1 had headers as a map of texts.
VERSION: Final = 2
# The group of a stream that has stored up to where messages are archived. So a broker that lost sight of an archive
# knows that there is one.
ARCHIVE_GROUP: Final = "amq.archive"
NO_NUMBERS: Final = ("path", "runs")
# A path below the stream's folder: it cannot leave the folder and names no hidden file.
PATH: Final = re.compile(r"date=[0-9]{4}-[0-9]{2}-[0-9]{2}/[^/\\\0.][^/\\\0]*\.parquet")


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file with all messages that the stream had from `first` up to `next` (exclusive).

    `size` is the file's size, `bytes` the size of its bodies; times are the least and the greatest, in ms since 1970.
    `runs` are the ranges of offsets that have messages; empty when all have.
    """

    path: str
    first: int
    next: int
    rows: int
    size: int
    bytes: int
    timestamp_ms_min: int
    timestamp_ms_max: int
    runs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ArchivedPartition:
    """An archived partition; `id` is the broker's number: another partition can have the same name."""

    id: int
    files: tuple[ArchivedFile, ...] = ()

    @property
    def next(self) -> int:
        """Return the offset after the last archived one; 1, the first offset, when nothing is archived."""
        return self.files[-1].next if self.files else 1

    def with_file(self, file: ArchivedFile) -> "ArchivedPartition":
        return replace(self, files=(*self.files, file))


@dataclass(frozen=True, slots=True)
class Manifest:
    vhost: str
    stream: str
    partitions: Mapping[str, ArchivedPartition] = field(default_factory=dict)

    def with_partition(self, name: str, partition: ArchivedPartition) -> "Manifest":
        return replace(self, partitions={**self.partitions, name: partition})

    def paths(self) -> set[str]:
        return {file.path for partition in self.partitions.values() for file in partition.files}

    def to_json(self) -> bytes:
        partitions = {
            name: {"id": partition.id, "files": [file_document(file) for file in partition.files]}
            for name, partition in self.partitions.items()
        }
        document = {"version": VERSION, "vhost": self.vhost, "stream": self.stream, "partitions": partitions}
        return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


@dataclass(frozen=True, slots=True)
class Live:
    """The state of a partition's log: its first offset, its end, and when the first message was stored (or 0)."""

    first: int
    next: int
    first_timestamp_ms: int


def belongs(partition: ArchivedPartition, partition_id: int, live: Live) -> bool:
    """Return whether the archive and the log are of the same partition, and not of two with the same name.

    Numbers may start again with a virtual host, so times are compared as well: messages that both have were stored
    before the archive's last, and a later stream's only after it.
    """
    if partition.id != partition_id or live.next < partition.next:
        return False
    both = files_from(partition.files, live.first, live.next)
    return not both or live.first_timestamp_ms <= max(file.timestamp_ms_max for file in both)


def files_from(files: Sequence[ArchivedFile], start: int, end: int) -> Sequence[ArchivedFile]:
    """Return the files that hold offsets from `start` up to `end` (exclusive)."""
    at = bisect_right(files, start, key=lambda file: file.next)
    below = bisect_right(files, end - 1, key=lambda file: file.first)
    return files[at:below]


def file_since(files: Sequence[ArchivedFile], timestamp_ms: int) -> ArchivedFile | None:
    """Return the file with the first message stored at this time or later."""
    return next((file for file in files if file.timestamp_ms_max >= timestamp_ms), None)


def runs_within(files: Sequence[ArchivedFile], end: int) -> tuple[list[tuple[int, int]], int]:
    """Return the ranges of offsets before `end` that have messages, and about how many bytes these have."""
    runs: list[tuple[int, int]] = []
    total = 0
    for file in files_from(files, 0, end):
        total += file.bytes * (min(file.next, end) - file.first) // (file.next - file.first)
        for first, behind in runs_of(file):
            if first < end:
                append_run(runs, first, min(behind, end))
    return runs, total


def append_run(runs: list[tuple[int, int]], first: int, behind: int) -> None:
    """Append a range behind all others; it is joined with the last one where it continues it."""
    if runs and runs[-1][1] == first:
        runs[-1] = (runs[-1][0], behind)
    else:
        runs.append((first, behind))


def runs_of(file: ArchivedFile) -> Sequence[tuple[int, int]]:
    return file.runs or ((file.first, file.next),)


def file_document(file: ArchivedFile) -> dict[str, Any]:
    document = asdict(file)
    if not file.runs:
        del document["runs"]
    return document


def parse_manifest(content: bytes, name: str) -> Manifest:
    """Parse a manifest; errors name it `name`. Raises ArchiveError."""
    try:
        document = json.loads(content)
        if document["version"] != VERSION:
            raise ArchiveError(
                f"{name} has version {document['version']}, and this release reads and writes only {VERSION}; "
                "move the folder away and archive the stream anew"
            )
        partitions = {part: parsed_partition(found) for part, found in document["partitions"].items()}
        manifest = Manifest(text(document["vhost"]), text(document["stream"]), partitions)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArchiveError(f"{name} is not an archive manifest: {error}; restore a copy of it") from error
    for part, partition in manifest.partitions.items():
        check_partition(part, partition, name)
    return manifest


def parsed_partition(found: Any) -> ArchivedPartition:
    return ArchivedPartition(number(found["id"]), tuple(parsed_file(file) for file in found["files"]))


def parsed_file(found: Any) -> ArchivedFile:
    numbers = {each.name: number(found[each.name]) for each in fields(ArchivedFile) if each.name not in NO_NUMBERS}
    path = text(found["path"])
    if not PATH.fullmatch(path):
        raise ValueError(f"'{path[:80]}' is not a file of the archive")
    runs = tuple((number(first), number(behind)) for first, behind in found.get("runs", ()))
    return ArchivedFile(path=path, runs=runs, **numbers)


def check_partition(part: str, partition: ArchivedPartition, name: str) -> None:
    at = 0
    for file in partition.files:
        if not (at <= file.first < file.next and are_right(file)):
            raise ArchiveError(f"{name}: the offsets of '{file.path}' in '{part}' cannot be; restore a copy of it")
        at = file.next


def are_right(file: ArchivedFile) -> bool:
    """Return whether the runs ascend within the file and have its rows."""
    runs = runs_of(file)
    ascend = all(behind <= first for (_, behind), (first, _) in pairwise(runs))
    within = file.first <= runs[0][0] and runs[-1][1] <= file.next
    return ascend and within and all(first < behind for first, behind in runs) and rows_of(runs) == file.rows


def rows_of(runs: Sequence[tuple[int, int]]) -> int:
    return sum(behind - first for first, behind in runs)


def number(found: Any) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 2**63:
        raise ValueError(f"{found!r} is not a valid number")
    return found


def text(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError(f"{found!r} is not a string")
    return found
