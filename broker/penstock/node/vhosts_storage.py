"""The storage of virtual hosts and the native engine, joined to the port of the package `vhost`.

`vhosts.json` is changed by one thread, one change after another; a vhost exists once it is named there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from penstock.kit.logging import logger
from penstock.metadata.effects import Entry, PersistDefaultQueueType, PersistLimits, PersistPolicies, SettingsEntry
from penstock.model.errors import FaultError, RefusedError, StorageError
from penstock.model.names import VhostName
from penstock.native import Engine, Shard
from penstock.services.ports import Corruption, Recovery
from penstock.storage import DataDirectory, DefinitionsCopy, DefinitionsFile, read_vhosts, write_vhosts
from penstock.storage.deletions_json import Deletion, Kind
from penstock.storage.entries import (
    change_of,
    default_queue_type_of,
    entry_of,
    limits_of,
    policies_of,
    record_of,
)
from penstock.storage.limits_json import LIMITS, write_limits_file
from penstock.storage.policies_json import OPERATOR_POLICIES, POLICIES, write_policies
from penstock.storage.settings_json import SETTINGS, write_settings_file
from penstock.storage.start_room import check_room
from penstock.storage.vhost_files import (
    create_vhost_directory,
    delete_vhost_directory,
    is_marked_deleted,
    mark_deleted,
    open_vhost_directory,
    remove_strays,
    unmark_deleted,
)
from penstock.vhost.ports import OpenedVhost

OPENING_THREADS = 4
DELETING_THREADS = 64
"""Started as they are needed. Deletions on disks that hang take them from other deletions alone."""
ForgetVhost = Callable[[VhostName], Awaitable[None]]
_log = logger("node")


class VhostsStorage:
    """Knows which definitions files are open, so that a stop can close them."""

    def __init__(self, directory: DataDirectory, engine: Engine, forget_vhost: ForgetVhost) -> None:
        """`forget_vhost` deletes every permission in a vhost, and returns when that is on the disk."""
        self._directory = directory
        self._engine = engine
        self._forget_vhost = forget_vhost
        self._names: list[str] = []
        self._files: dict[str, DefinitionsFile] = {}
        self._shards: dict[str, Shard] = {}
        self._read: dict[str, _Read] = {}
        self._opening: dict[str, asyncio.Future[OpenedVhost]] = {}
        self._openers = ThreadPoolExecutor(OPENING_THREADS, thread_name_prefix="open")
        self._deleters = ThreadPoolExecutor(DELETING_THREADS, thread_name_prefix="delete")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="vhosts")

    async def names(self) -> list[VhostName]:
        """Return the names in the file's order.

        All files are read before the first log is opened, which changes it; then `node.json` states the format of what
        is written from now on, and all logs start to open at once, in threads.
        """
        loop = asyncio.get_running_loop()
        self._names = await loop.run_in_executor(self._writer, self._read_names)
        names = [VhostName(name) for name in self._names]
        reading = [loop.run_in_executor(self._openers, self._read_files, name) for name in names]
        for fault in await asyncio.gather(*reading, return_exceptions=True):
            if isinstance(fault, BaseException):
                raise fault
        await loop.run_in_executor(self._writer, self._check_room)
        await loop.run_in_executor(self._writer, self._raise_format)
        self._opening = {name: loop.run_in_executor(self._openers, self._open, name) for name in names}
        await loop.run_in_executor(self._writer, self._remove_strays)
        return names

    async def open(self, name: VhostName) -> OpenedVhost:
        opening = self._opening.pop(name, None)
        if opening is not None:
            return await opening
        return await asyncio.get_running_loop().run_in_executor(self._openers, self._open, name)

    async def create(self, name: VhostName, shard_count: int = 1) -> OpenedVhost:
        """Create a vhost with all its shards; leave nothing of it when a step fails.

        If a deletion of that name failed half-way, complete it first: the next start would delete the new vhost.
        """
        if self.is_being_deleted(name):
            await self.delete(name)
        loop = asyncio.get_running_loop()
        if name in self._names:
            # It was made before, and only its use could not begin.
            await self._close_one(name)
            opened = await self.open(name)
            await loop.run_in_executor(self._openers, opened.shard.grow, shard_count)
            return opened
        try:
            opened = await loop.run_in_executor(self._openers, self._make, name, shard_count)
            await loop.run_in_executor(self._writer, self._add, name)
        except (FaultError, RefusedError):
            await self._abandon(name)
            raise
        await loop.run_in_executor(self._openers, self._unmark, name)
        await loop.run_in_executor(self._writer, self._note)
        return opened

    async def _abandon(self, name: VhostName) -> None:
        """Remove what there is of a vhost that could not be created.

        It stays when `vhosts.json` may name it: then a start finds all of it. Else its directory is marked, and what
        cannot be removed now is removed by the next start.
        """
        loop = asyncio.get_running_loop()
        await self._close_one(name)
        with suppress(StorageError):
            if name not in await loop.run_in_executor(self._writer, self._read_names):
                path = self._directory.vhost_directory(name)
                await loop.run_in_executor(self._openers, _delete_marked, path)

    async def _close_one(self, name: VhostName) -> None:
        file, shard = self._files.pop(name, None), self._shards.pop(name, None)
        self._read.pop(name, None)
        if file is not None:
            await file.close()
        if shard is not None:
            with suppress(StorageError):
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._openers, partial(shard.close, delete=False))

    def is_being_deleted(self, name: VhostName) -> bool:
        return Deletion(Kind.VHOST, name) in self._directory.deletions.begun

    async def begin_deletion(self, name: VhostName) -> None:
        begin = self._directory.deletions.begin
        await asyncio.get_running_loop().run_in_executor(self._writer, begin, Deletion(Kind.VHOST, name))

    async def delete(self, name: VhostName) -> None:
        """Each step may have been done before: by a deletion that failed later, which is tried again."""
        await self.begin_deletion(name)
        file = self._files.pop(name, None)
        self._shards.pop(name, None)
        self._read.pop(name, None)
        if file is not None:
            await file.close()
        loop, path = asyncio.get_running_loop(), self._directory.vhost_directory(name)
        # All vhosts share the writer: it touches no disk of this vhost's own, and removes no large files.
        await loop.run_in_executor(self._deleters, _mark_deleted, path)
        await loop.run_in_executor(self._writer, self._delete, name)
        await loop.run_in_executor(self._deleters, delete_vhost_directory, path)
        await self._forget_vhost(name)
        end = self._directory.deletions.end
        await loop.run_in_executor(self._writer, end, Deletion(Kind.VHOST, name))

    async def close(self) -> None:
        """Close the definitions files. The engine closes the logs."""
        for opening in self._opening.values():
            opening.cancel()
        for file in self._files.values():
            await file.close()
        self._openers.shutdown(wait=False, cancel_futures=True)
        self._deleters.shutdown(wait=False, cancel_futures=True)
        self._writer.shutdown(wait=False)

    def recovery(self) -> Recovery:
        """Return the cost of opening the logs, summed over all vhosts."""
        parts = [shard.recovery for shard in self._shards.values()]
        return Recovery(
            ms=sum(part.microseconds for part in parts) / 1_000,
            bytes_read=sum(part.bytes_read for part in parts),
            records=sum(part.records for part in parts),
            torn_bytes=sum(part.torn_bytes for part in parts),
        )

    def corruptions(self) -> list[Corruption]:
        """Return the corruption found since the logs were opened."""
        return [
            Corruption(name, corrupt.file, corrupt.at, tuple(corrupt.queues), corrupt.record_count)
            for name, shard in self._shards.items()
            for corrupt in shard.corruptions()
        ]

    def _read_names(self) -> list[str]:
        return read_vhosts(self._directory.vhosts_file) or []

    def _check_room(self) -> None:
        check_room(self._directory.path, [self._directory.vhost_directory(name) for name in self._names])

    def _raise_format(self) -> None:
        before, now = self._directory.raise_format(), self._directory.format
        if before != now:
            _log.warning("data directory upgraded, earlier versions refuse it", format=now, format_before=before)

    def _remove_strays(self) -> None:
        remove_strays(self._directory.path, {self._directory.vhost_directory(name).name for name in self._names})

    def _make(self, name: VhostName, shard_count: int) -> OpenedVhost:
        """Make all of a vhost that `vhosts.json` does not name yet: until then its directory is marked."""
        path = self._directory.vhost_directory(name)
        create_vhost_directory(path, name)
        opened = self._open(name, is_new=True)
        opened.shard.grow(shard_count)
        return opened

    def _add(self, name: VhostName) -> None:
        self._write_names([*(other for other in self._names if other != name), name])

    def _unmark(self, name: VhostName) -> None:
        """Remove the mark of a vhost that is named. A start does it, too."""
        with suppress(OSError):
            unmark_deleted(self._directory.vhost_directory(name))

    def _delete(self, name: VhostName) -> None:
        if name in self._names:
            self._write_names([other for other in self._names if other != name])
        self._note()  # before one of the same name can be made

    def _write_names(self, names: list[str]) -> None:
        write_vhosts(self._directory.vhosts_file, names)
        self._names = names

    def _note(self) -> None:
        # One that is just being made has no log yet that can be missed.
        opened = [name for name in self._names if name in self._shards]
        try:
            self._directory.note_vhosts(opened)
        except StorageError as error:  # the next start lists them, and has the proofs without being told of them
            _log.warning("the list of files was not updated", reason=str(error))

    async def _note_soon(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer, self._note)

    def _read_files(self, name: VhostName, *, is_new: bool = False) -> None:
        """Read the files beside the log. All of them must be valid before the first log is changed."""
        path = self._directory.vhost_directory(name)
        self._directory.check_settings(name)
        file, changes = open_vhost_directory(path, name, is_proven=self._directory.has_proof(name), is_named=not is_new)
        self._files[name] = file
        entries: list[Entry] = [entry_of(change) for change in changes]
        entries.append(policies_of(path / POLICIES, name, is_operator=False))
        entries.append(policies_of(path / OPERATOR_POLICIES, name, is_operator=True))
        entries.append(limits_of(path / LIMITS, name))
        entries.append(default_queue_type_of(path / SETTINGS))
        self._read[name] = _Read(file, entries)

    def _open(self, name: VhostName, *, is_new: bool = False) -> OpenedVhost:
        path = self._directory.vhost_directory(name)
        if name not in self._read:
            self._read_files(name, is_new=is_new)
        read = self._read.pop(name)
        shard = self._engine.open_shard(name, str(path), page_cache_lost=self._directory.may_have_lost_page_cache)
        self._shards[name] = shard
        return OpenedVhost(name, _Definitions(read.file, path, name, self._note_soon), shard, read.entries)


def _delete_marked(path: Path) -> None:
    """Delete a directory unless it holds data of before, for which its creation was refused."""
    if is_marked_deleted(path):
        delete_vhost_directory(path)


def _mark_deleted(path: Path) -> None:
    if path.is_dir():
        mark_deleted(path)


@dataclass(frozen=True, slots=True)
class _Read:
    """A vhost's files before its log is opened."""

    file: DefinitionsFile
    entries: list[Entry]


class _Definitions:
    """A definitions file, and the files of policies, limits and the default queue type beside it.

    One append writes only one of them, so that it is written completely or not at all.
    """

    def __init__(self, file: DefinitionsFile, path: Path, vhost: str, note: Callable[[], Awaitable[None]]) -> None:
        self._file = file
        self._path = path
        self._vhost = vhost
        self._note = note

    async def append(self, entries: Sequence[Entry]) -> None:
        settings = [entry for entry in entries if isinstance(entry, SettingsEntry)]
        if not settings:
            await self._file.append([change_of(entry) for entry in entries])
            return
        assert len(entries) == 1
        if await asyncio.to_thread(self._write_settings, settings[0]):
            await self._note()  # from now on the file is missed when it vanishes

    def _write_settings(self, entry: SettingsEntry) -> bool:
        """Return whether the file is new."""
        match entry:
            case PersistPolicies(is_operator=is_operator):
                path = self._path / (OPERATOR_POLICIES if is_operator else POLICIES)
            case PersistLimits():
                path = self._path / LIMITS
            case PersistDefaultQueueType():
                path = self._path / SETTINGS
        is_new = not path.exists()
        match entry:
            case PersistPolicies(policies):
                write_policies(path, self._vhost, [record_of(policy) for policy in policies])
            case PersistLimits(limits):
                write_limits_file(path, limits.written())
            case PersistDefaultQueueType(kind):
                write_settings_file(path, kind.value)
        return is_new

    def begin_backup(self) -> DefinitionsCopy:
        return self._file.begin_backup()
