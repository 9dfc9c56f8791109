"""A coordinator in a directory: for one broker in its data directory, and for several on one machine, in development.

Each shard has a file with its record and a version that each change draws anew. A lock of the kernel makes changes take
turns. Limits: the directory is on a local file system, because locks and renames elsewhere promise less; a machine
whose disk is lost loses the records.
"""

import asyncio
import fcntl
import json
import os
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.cluster.coordinator import Refused, Version, Versioned, check_name, draw_version
from penstock.cluster.record import ShardRecord, parse_record
from penstock.model.errors import NotWrittenError, StorageError, Thing
from penstock.storage.jsonfiles import read_json, write_json

POLL_S: Final = 0.2


class DirectoryCoordinator:
    """Records in a directory. Several processes may use it at once."""

    def __init__(self, directory: Path) -> None:
        """Make the directory if it is not there. Raises StorageError."""
        self._directory = directory
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise self._failed("cannot be created", error) from error

    async def read(self, shard: str) -> Versioned | None:
        return await asyncio.to_thread(self._read, self._path("shard", shard))

    async def change(self, shard: str, base: Version | None, record: ShardRecord) -> Version | Refused:
        return await asyncio.to_thread(self._change, self._path("shard", shard), base, record)

    async def watch(self, shard: str) -> AsyncIterator[Versioned]:
        seen: Version | None = None
        while True:
            found = await self.read(shard)
            if found is not None and found.version != seen:
                seen = found.version
                yield found
            await asyncio.sleep(POLL_S)

    async def beat(self, broker: str, boot: int) -> None:
        beat = {"boot": boot, "beat": secrets.token_hex(8)}
        await asyncio.to_thread(write_json, self._path("broker", broker), beat)

    async def close(self) -> None:
        """Do nothing: no file stays open."""

    async def beats(self) -> Mapping[str, str]:
        return await asyncio.to_thread(self._beats)

    def _path(self, kind: str, name: str) -> Path:
        return self._directory / f"{kind}-{check_name(kind, name)}.json"

    def _read(self, path: Path) -> Versioned | None:
        try:
            value = read_json(path)
        except FileNotFoundError:
            return None
        where = Thing("file", str(path))
        match value:
            case {"version": str(version), "record": dict(record), **rest} if not rest:
                return Versioned(parse_record(json.dumps(record), where), Version(version))
        raise StorageError(where, "must hold an object with version and record", "restore a copy")

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
