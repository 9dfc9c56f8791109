"""Makes backups of the running broker: fixes every vhost at one point, then has the copies written by threads.

One backup runs at a time; the files of a failed backup are removed. A vhost can be deleted as soon as its own copy is
written.
"""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from penstock.kit.logging import logger
from penstock.kit.tasks import spawn
from penstock.model.errors import FaultError, InvalidArgumentError, PreconditionFailedError, RefusedError, Thing
from penstock.model.names import VhostName
from penstock.services import ports
from penstock.services.ports import WrittenBackup
from penstock.services.principal import Principal
from penstock.services.verbs import changing
from penstock.storage import DataDirectory, UsersCopy, VhostCopy, copy_users, write_backup
from penstock.vhost.vhost import Vhost, VhostBackup
from penstock.vhost.vhosts import Vhosts

FIX_SECONDS: Final = 30.0
"""So long a backup waits for each vhost to end what it writes just then."""
FIX_COUNT_MAX: Final = 8
"""Attempts to find a point at which no deletion ends."""

_log = logger("node")


class Backups:
    """Implements `services.ports.Backups`."""

    def __init__(self, data: DataDirectory, vhosts: Vhosts, fix_seconds: float = FIX_SECONDS) -> None:
        self._data = data
        self._vhosts = vhosts
        self._fix_seconds = fix_seconds
        self._is_under_way = False

    async def write(self, directory: str) -> WrittenBackup:
        thing = Thing("backup", directory)
        target = self._checked(thing, directory)
        if self._is_under_way:
            raise PreconditionFailedError(thing, "is refused: another backup is running", "retry when it has ended")
        self._is_under_way = True
        try:
            return await self._write_to(target)
        finally:
            self._is_under_way = False

    async def _write_to(self, target: Path) -> WrittenBackup:
        with ExitStack() as fixed:
            backups, users = await self._fix_with_users(target, fixed.enter_context(self._vhosts.keep()))
            for backup in backups:
                fixed.callback(backup.close)
            copies = [VhostCopy(backup.name, backup.definitions, backup.log) for backup in backups]
            # A caller that goes away does not end the thread, which must not be left behind with what it needs closed.
            loop = asyncio.get_running_loop()

            def release(copy: VhostCopy) -> None:
                loop.call_soon_threadsafe(self._vhosts.release, VhostName(copy.name))

            written = loop.run_in_executor(None, write_backup, self._data, target, copies, users, release)
            try:
                size = await asyncio.shield(written)
            except asyncio.CancelledError:
                await asyncio.wait([written])
                raise
        _log.info("backup written", directory=str(target), vhosts=len(copies), bytes=size)
        return WrittenBackup(len(copies), size)

    async def _fix_with_users(self, target: Path, vhosts: Sequence[Vhost]) -> tuple[list[VhostBackup], UsersCopy]:
        """Fix every vhost and the users at one point.

        A user that is deleted between would leave its producers in a log, and a user of that name would inherit them.
        """
        for _ in range(FIX_COUNT_MAX):
            ended_count = self._data.deletions.ended_count
            backups = await self._fix(target, vhosts)
            try:
                users = await asyncio.to_thread(copy_users, self._data)
                if self._data.deletions.ended_count == ended_count:
                    return backups, users
            except BaseException:
                _close(backups)
                raise
            _close(backups)
        cause = f"is refused: a user or vhost was deleted during each of {FIX_COUNT_MAX} attempts"
        raise PreconditionFailedError(Thing("backup", str(target)), cause, "retry when no more are deleted")

    async def _fix(self, target: Path, vhosts: Sequence[Vhost]) -> list[VhostBackup]:
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
                raise PreconditionFailedError(Thing("backup", str(target)), cause, "check the disk, then retry")
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
