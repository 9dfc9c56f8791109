"""Makes backups of the running broker: fixes every vhost at one point, then has the copies written by threads.

One backup runs at a time, written to a directory or downloaded; the files of a failed backup are removed. A vhost can
be deleted as soon as its own copy is written.
"""

import asyncio
import functools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from penstock.kit.clock import Clock
from penstock.kit.logging import logger
from penstock.kit.tasks import spawn
from penstock.model.errors import (
    FaultError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionFailedError,
    RefusedError,
    Thing,
)
from penstock.model.names import ConnectionId, VhostName
from penstock.native import version
from penstock.services import ports
from penstock.services.downloads import IDLE_SECONDS, Download, finished
from penstock.services.ports import BackupPart, BegunBackup, WrittenBackup
from penstock.services.principal import Principal
from penstock.services.verbs import changing, reading
from penstock.storage import (
    DataDirectory,
    MetadataCopy,
    UsersCopy,
    VhostCopy,
    copy_users,
    is_request_id,
    open_backup_stream,
    write_backup,
)
from penstock.vhost.all_vhosts import AllVhosts
from penstock.vhost.vhost import Vhost, VhostBackup

FIX_SECONDS: Final = 30.0
"""So long a backup waits for each vhost to end what it writes just then."""
FIX_COUNT_MAX: Final = 8
"""Attempts to find a point at which no deletion ends."""
_DOWNLOAD: Final = "download"
"""The name of a backup that has no directory, in errors."""

_log = logger("node")


class MetadataSource(Protocol):
    """The metadata of a cluster, as a whole."""

    async def begin_backup(self, vhosts: Sequence[VhostCopy], /) -> tuple[list[VhostCopy], MetadataCopy]:
        """Fix the metadata after these copies were fixed; return it, and the copies of vhosts that it still has."""


class Backups:
    """Implements `services.ports.Backups`."""

    def __init__(
        self,
        data: DataDirectory,
        vhosts: AllVhosts,
        clock: Clock,
        fix_seconds: float = FIX_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        metadata: MetadataSource | None = None,
    ) -> None:
        """In a cluster, `metadata` is that of the cluster."""
        self._data = data
        self._vhosts = vhosts
        self._clock = clock
        self._fix_seconds = fix_seconds
        self._idle_seconds = idle_seconds
        self._metadata = metadata
        self._is_under_way = False
        self._download: Download | None = None

    async def write(self, directory: str) -> WrittenBackup:
        thing = Thing("backup", directory)
        target = self._checked(thing, directory)
        self._enter(thing)
        try:
            return await self._write_to(thing, target)
        finally:
            self._is_under_way = False

    async def begin(self, owner: str, connection: ConnectionId, request_id: str) -> BegunBackup:
        thing = Thing("backup", _DOWNLOAD)
        if request_id and not is_request_id(request_id):
            rule = "has a request id that is not 1 to 128 letters, digits, dots, dashes and underscores"
            raise InvalidArgumentError(thing, rule, "write another one, or none", field="request_id")
        self._enter(thing)
        fixed = ExitStack()
        fixed.callback(self._leave)
        try:
            copies, users = await self._fixed(thing, fixed)
            origin = (version, self._clock.now_ms() // 1_000)
            where = (self._data, copies, users, origin, self._releasing(), request_id)
            stream = await finished(functools.partial(open_backup_stream, *where))
        except BaseException:
            fixed.close()
            raise
        self._download = download = Download(owner, connection, stream, fixed, self._idle_seconds)
        return BegunBackup(download.id, stream.total_bytes, stream.vhost_count, stream.data_id, version)

    async def read(self, owner: str, backup: str, offset: int) -> BackupPart:
        return await self._found(owner, backup).read(offset)

    async def end(self, owner: str, backup: str) -> None:
        download = self._download
        if download is not None and (download.owner, download.id) == (owner, backup):
            await download.end()

    def connection_ended(self, number: ConnectionId) -> None:
        if self._download is not None:
            self._download.connection_ended(number)

    async def close(self) -> None:
        """End the backup that is being downloaded: the broker stops."""
        if self._download is not None:
            await self._download.end()

    def _enter(self, thing: Thing) -> None:
        if self._is_under_way:
            raise PreconditionFailedError(thing, "is refused: another backup is running", "retry when it has ended")
        self._is_under_way = True

    def _leave(self) -> None:
        self._is_under_way, self._download = False, None

    def _found(self, owner: str, backup: str) -> Download:
        download = self._download
        if download is None or (download.owner, download.id) != (owner, backup):
            raise NotFoundError(Thing("backup", backup), "begin another one: it has ended, or waited too long")
        return download

    def _releasing(self) -> Callable[[VhostCopy], None]:
        """Return what a thread calls when a vhost is copied, so that it can be deleted."""
        loop = asyncio.get_running_loop()

        def release(copy: VhostCopy) -> None:
            loop.call_soon_threadsafe(self._vhosts.release, VhostName(copy.name))

        return release

    async def _fixed(self, thing: Thing, fixed: ExitStack) -> tuple[list[VhostCopy], UsersCopy]:
        backups, users = await self._fix_with_users(thing, fixed.enter_context(self._vhosts.keep()))
        for backup in backups:
            fixed.callback(backup.close)
        copies = [VhostCopy(backup.name, backup.definitions, backup.log) for backup in backups]
        if self._metadata is not None:
            copies, metadata = await self._metadata.begin_backup(copies)
            fixed.callback(metadata.log.close)
            users = replace(users, metadata=metadata)
        return copies, users

    async def _write_to(self, thing: Thing, target: Path) -> WrittenBackup:
        with ExitStack() as fixed:
            copies, users = await self._fixed(thing, fixed)
            writing = functools.partial(write_backup, self._data, target, copies, users, self._releasing())
            size = await finished(writing)
        _log.info("backup written", directory=str(target), vhosts=len(copies), bytes=size)
        return WrittenBackup(len(copies), size)

    async def _fix_with_users(self, thing: Thing, vhosts: Sequence[Vhost]) -> tuple[list[VhostBackup], UsersCopy]:
        """Fix every vhost and the users at one point.

        A user that is deleted between would leave its producers in a log, and a user of that name would inherit them.
        """
        for _ in range(FIX_COUNT_MAX):
            ended_count = self._data.deletions.ended_count
            backups = await self._fix(thing, vhosts)
            try:
                users = await asyncio.to_thread(copy_users, self._data)
                if self._data.deletions.ended_count == ended_count:
                    return backups, users
            except BaseException:
                _close(backups)
                raise
            _close(backups)
        cause = f"is refused: a user or vhost was deleted during each of {FIX_COUNT_MAX} attempts"
        raise PreconditionFailedError(thing, cause, "retry when no more are deleted")

    async def _fix(self, thing: Thing, vhosts: Sequence[Vhost]) -> list[VhostBackup]:
        """Fix every vhost at one point.

        One that is late, as on a disk that hangs, refuses the backup by name, and keeps no other from being deleted.
        """
        loop = asyncio.get_running_loop()
        fixing: dict[asyncio.Future[VhostBackup], Vhost] = {loop.create_future(): vhost for vhost in vhosts}
        for fixed, vhost in fixing.items():
            spawn(_fix_one(vhost, fixed), name="backup begins", on_bug=fixed.set_exception)
        try:
            _, late = await asyncio.wait(fixing, timeout=self._fix_seconds)
            if late:
                names = ", ".join(repr(str(vhost.name)) for fixed, vhost in fixing.items() if fixed in late)
                cause = f"is refused: no answer of vhost {names} for {self._fix_seconds:g} seconds; a disk may hang"
                raise PreconditionFailedError(thing, cause, "check the disk, then retry")
            return [fixed.result() for fixed in fixing]
        except BaseException:
            for fixed in fixing:
                if not fixed.cancel() and fixed.exception() is None:
                    fixed.result().close()
            raise

    def _checked(self, thing: Thing, directory: str) -> Path:
        """Where it lies, links resolved, so that no copy ends up inside what is copied."""
        if not directory.startswith("/") or "\0" in directory:
            raise InvalidArgumentError(
                thing, "is not an absolute path", "name an absolute path on the broker's machine", field="directory"
            )
        target = Path(directory).resolve()
        data = self._data.path.resolve()
        if target == data or data in target.parents or target in data.parents:
            raise InvalidArgumentError(
                thing, "is in the data directory, or holds it", "name another directory", field="directory"
            )
        return target


def _close(backups: Sequence[VhostBackup]) -> None:
    for backup in backups:
        backup.close()


async def _fix_one(vhost: Vhost, fixed: "asyncio.Future[VhostBackup]") -> None:
    try:
        backup = await vhost.begin_backup()
    except (RefusedError, FaultError) as error:
        if not fixed.done():
            fixed.set_exception(error)
        return
    if fixed.done():  # too late
        backup.close()
    else:
        fixed.set_result(backup)


class BackupVerbs:
    def __init__(self, backups: ports.Backups) -> None:
        self._backups = backups

    @changing("Backup", "directory")
    async def make_backup(self, principal: Principal, directory: str) -> WrittenBackup:
        """Copy the whole broker to a directory of its machine; the copy is on the disk when this returns."""
        principal.require_administrator(Thing("backup", directory))
        return await self._backups.write(directory)

    @changing("BeginBackup")
    async def begin_backup(self, principal: Principal, request_id: str = "") -> BegunBackup:
        """Fix a copy of the whole broker, to be read part by part. The archive names the request."""
        principal.require_administrator(Thing("backup", _DOWNLOAD))
        begun = await self._backups.begin(principal.name, principal.connection_id, request_id)
        if principal.connection.has_ended:  # before there was something to end with it
            await self._backups.end(principal.name, begun.id)
        return begun

    @reading
    async def read_backup(self, principal: Principal, backup: str, offset: int) -> BackupPart:
        """Return the next part of a backup that the same user began."""
        principal.require_administrator(Thing("backup", backup))
        return await self._backups.read(principal.name, backup, offset)

    @changing("EndBackup", "backup")
    async def end_backup(self, principal: Principal, backup: str) -> None:
        """Release a backup that is not wanted any more."""
        principal.require_administrator(Thing("backup", backup))
        await self._backups.end(principal.name, backup)
