"""`deletions.json` of a data directory: the virtual hosts and users whose deletion has begun and not ended.

It gets an entry before the first step of a deletion and loses it after the last, so that a start completes a deletion
that was interrupted. Without such a deletion there is no file.
"""

import threading
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from penstock.model.errors import DiskFullError, NotWrittenError, StorageError, Thing
from penstock.storage.jsonfiles import json_content, read_json, sync_directory, write_file

DELETIONS: Final = "deletions.json"


class Kind(StrEnum):
    """The things whose deletion takes several files."""

    USER = "user"
    VHOST = "vhost"


@dataclass(frozen=True, slots=True)
class Deletion:
    """A deletion that has begun."""

    kind: Kind
    name: str


class Deletions:
    """Knows which deletions have begun. Its methods that block may be called by several threads."""

    def __init__(self, path: Path, begun: tuple[Deletion, ...]) -> None:
        self.begun = begun
        self.ended_count = 0
        """It rises before an entry leaves `begun`, so that a copy of several files can see that a deletion ended."""
        self._path = path
        self._changing = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the file of a data directory. Blocks. Raises StorageError."""
        return cls(path, tuple(_read(path)))

    def begin(self, deletion: Deletion) -> None:
        """Record a deletion before its first step. Blocks until that is on the disk. Raises StorageError."""
        self.change([deletion], [])

    def end(self, deletion: Deletion) -> None:
        """Remove a deletion after its last step. Blocks until that is on the disk. Raises StorageError."""
        self.change([], [deletion])

    def change(self, begins: Collection[Deletion], ends: Collection[Deletion]) -> None:
        """Record several deletions in one writing: all of them or none. Blocks. Raises StorageError."""
        with self._changing:
            ended = frozenset(ends).intersection(self.begun)
            begun = tuple(dict.fromkeys((*(other for other in self.begun if other not in ended), *begins)))
            if begun == self.begun:
                return
            try:
                write_deletions(self._path, begun)
            except (DiskFullError, NotWrittenError):
                raise
            except StorageError:
                self.begun = tuple(dict.fromkeys((*self.begun, *begins)))  # a start may find them, so they count
                raise
            self.ended_count += len(ended)
            self.begun = begun


def write_deletions(path: Path, deletions: tuple[Deletion, ...]) -> None:
    """Replace the file, or remove it when there are none. Blocks. Raises StorageError."""
    if deletions:
        write_file(path, deletions_content(deletions))
        return
    try:
        path.unlink(missing_ok=True)
        sync_directory(path.parent)
    except OSError as error:
        raise StorageError(
            Thing("file", str(path)), f"cannot be removed: {error.strerror}", "make it writable for the broker's user"
        ) from error


def deletions_content(deletions: tuple[Deletion, ...]) -> bytes:
    """Return the content of the file."""
    return json_content([{"kind": deletion.kind.value, "name": deletion.name} for deletion in deletions])


def _read(path: Path) -> list[Deletion]:
    try:
        found = read_json(path)
    except FileNotFoundError:
        return []
    if not isinstance(found, list):
        raise _wrong(path, "it must hold a list")
    return [_deletion(path, index, entry) for index, entry in enumerate(found)]


def _deletion(path: Path, index: int, entry: object) -> Deletion:
    kinds = tuple(Kind)
    if not isinstance(entry, dict) or entry.keys() != {"kind", "name"} or not isinstance(entry["name"], str):
        raise _wrong(path, f"[{index}] must be an object with the keys 'kind' and 'name'")
    if entry["kind"] not in kinds:
        raise _wrong(path, f"[{index}].kind must be one of {', '.join(kinds)}")
    return Deletion(Kind(entry["kind"]), entry["name"])


def _wrong(path: Path, rule: str) -> StorageError:
    return StorageError(Thing("file", str(path)), f"is invalid: {rule}", "correct it, then start again")
