"""A coordinator in a directory: for one broker in its data directory, and for several on one machine, in development.

Each shard has a file with its record and a version that each change draws anew. A lock of the kernel makes changes take
turns. A watch checks all files together, and reads the changed ones.

Limits: the directory is on a local file system, because locks and renames elsewhere promise less; a machine whose disk
is lost loses the records. A process that stands still in the middle of a change keeps the others from changing records
until it goes on.
"""

import asyncio
import fcntl
import json
import os
import secrets
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.cluster.coordinator import Refused, Version, Versioned, check_name, draw_version
from penstock.cluster.record import ShardRecord, parse_record
from penstock.cluster.watching import Listing, Pace, SharedWatch
from penstock.model.errors import NotWrittenError, StorageError, Thing
from penstock.storage.jsonfiles import parse_json, read_json, write_json

POLL_S: Final = 0.2
_PREFIX, _SUFFIX = "shard-", ".json"
LOOKS: Final = 4.0
"""The pause between two looks is at least as many times as long as a look, which is no work for another machine."""


class DirectoryCoordinator:
    """Records in a directory. Several processes may use it at once."""

    def __init__(self, directory: Path) -> None:
        """Make the directory if it is not there. Raises StorageError."""
        self._directory = directory
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise self._failed("cannot be created", error) from error
        self._watch = SharedWatch(_Shards(directory), Pace(POLL_S, LOOKS))

    async def read(self, shard: str) -> Versioned | None:
        return await asyncio.to_thread(self._read, self._path("shard", shard))

    async def change(self, shard: str, base: Version | None, record: ShardRecord) -> Version | Refused:
        return await asyncio.to_thread(self._change, self._path("shard", shard), base, record)

    def watch(self, shard: str) -> AsyncGenerator[Versioned, None]:
        return self._watch.watch(check_name("shard", shard))

    async def beat(self, broker: str, boot: int) -> None:
        beat = {"boot": boot, "beat": secrets.token_hex(8)}
        await asyncio.to_thread(write_json, self._path("broker", broker), beat)

    async def close(self) -> None:
        """End the watches: no file stays open."""
        await self._watch.close()

    async def beats(self) -> Mapping[str, str]:
        return await asyncio.to_thread(self._beats)

    def _path(self, kind: str, name: str) -> Path:
        return self._directory / f"{kind}-{check_name(kind, name)}.json"

    def _read(self, path: Path) -> Versioned | None:
        try:
            return _versioned(path, read_json(path))
        except FileNotFoundError:
            return None

    def _change(self, path: Path, base: Version | None, record: ShardRecord) -> Version | Refused:
        version = draw_version()
        with self._locked():
            found = self._read(path)
            if (found.version if found else None) != base:
                return Refused.CONFLICT
            try:
                write_json(path, {"version": version, "record": record.stored()})
            except NotWrittenError:
                raise
            except StorageError:
                return Refused.UNKNOWN  # the name may not be on the disk
        return version

    def _beats(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for path in self._directory.glob("broker-*.json"):
            try:
                found[path.stem.removeprefix("broker-")] = json.dumps(read_json(path))
            except FileNotFoundError:
                continue
        return found

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            descriptor = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._failed("cannot be locked", error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _failed(self, what: str, error: OSError) -> StorageError:
        return StorageError(
            Thing("directory", str(self._directory)), f"{what}: {error.strerror}", "check its path and rights"
        )


@dataclass(frozen=True, slots=True)
class Look:
    """A file as it was seen."""

    inode: int
    mtime_ns: int
    size: int
    content: bytes | StorageError
    is_settled: bool = False
    """It was the same twice. Two changes in one tick of the file system's clock look like one."""

    def is_of(self, found: os.stat_result) -> bool:
        return (self.inode, self.mtime_ns, self.size) == (found.st_ino, found.st_mtime_ns, found.st_size)


def look_at(directory: Path, before: Mapping[str, Look]) -> dict[str, Look]:
    """Return the files of all shards, and read the ones that were not the same twice before. Raises OSError."""
    looks: dict[str, Look] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX):
                shard = entry.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
                try:
                    looks[shard] = _looked(Path(entry.path), entry.stat(), before.get(shard))
                except FileNotFoundError:
                    continue
    return looks


def _looked(path: Path, found: os.stat_result, before: Look | None) -> Look:
    is_same = before is not None and before.is_of(found)
    if before is not None and is_same and before.is_settled:
        return before
    try:
        content: bytes | StorageError = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        rule = f"cannot be read: {error.strerror}"
        content = StorageError(Thing("file", str(path)), rule, "make it readable for the broker's user")
    is_settled = is_same and isinstance(content, bytes)
    return Look(found.st_ino, found.st_mtime_ns, found.st_size, content, is_settled)


class _Shards:
    """The files of all shards."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._looks: Mapping[str, Look] = {}

    async def listed(self) -> Listing[bytes | StorageError]:
        try:
            self._looks = await asyncio.to_thread(look_at, self._directory, self._looks)
        except OSError as error:
            where = Thing("directory", str(self._directory))
            raise StorageError(where, f"cannot be listed: {error.strerror}", "check its path and rights") from error
        return Listing({shard: look.content for shard, look in self._looks.items()})

    async def changes(
        self, _revision: str, _seconds: float
    ) -> AsyncGenerator[Mapping[str, bytes | StorageError | None], None]:
        """Wait until the next look: a directory sends no events."""
        await asyncio.Event().wait()
        yield {}

    def parse(self, shard: str, stored: bytes | StorageError) -> Versioned:
        if isinstance(stored, StorageError):
            raise stored
        path = self._directory / f"{_PREFIX}{shard}{_SUFFIX}"
        return _versioned(path, parse_json(stored, path))


def _versioned(path: Path, value: object) -> Versioned:
    where = Thing("file", str(path))
    match value:
        case {"version": str(version), "record": dict(record), **rest} if not rest:
            return Versioned(parse_record(json.dumps(record), where), Version(version))
    raise StorageError(where, "must hold an object with version and record", "restore a copy")
