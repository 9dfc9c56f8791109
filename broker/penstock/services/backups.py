"""Makes backups of the running broker: fixes every vhost at one point, then has the copy written by a thread.

One backup runs at a time; the files of a failed backup are removed.
"""

import asyncio
from contextlib import ExitStack
from pathlib import Path

from penstock.kit.logging import logger
from penstock.model.errors import InvalidArgumentError, PreconditionFailedError, Thing
from penstock.services import ports
from penstock.services.ports import WrittenBackup
from penstock.services.principal import Principal
from penstock.services.verbs import changing
from penstock.storage import DataDirectory, VhostCopy, write_backup
from penstock.vhost.vhosts import Vhosts

_log = logger("node")


class Backups:
    """Implements `services.ports.Backups`."""

    def __init__(self, data: DataDirectory, vhosts: Vhosts) -> None:
        self._data = data
        self._vhosts = vhosts
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
            copies: list[VhostCopy] = []
            for vhost in fixed.enter_context(self._vhosts.keep()):
                copy = await vhost.begin_backup()
                fixed.callback(copy.close)
                copies.append(VhostCopy(copy.name, copy.definitions, copy.log))
            # A caller that goes away does not end the thread, which must not be left behind with what it needs closed.
            loop = asyncio.get_running_loop()
            written = loop.run_in_executor(None, write_backup, self._data, target, copies)
            try:
                size = await asyncio.shield(written)
            except asyncio.CancelledError:
                await asyncio.wait([written])
                raise
        _log.info("backup written", directory=str(target), vhosts=len(copies), bytes=size)
        return WrittenBackup(len(copies), size)

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


class BackupVerbs:
    def __init__(self, backups: ports.Backups) -> None:
        self._backups = backups

    @changing("Backup", "directory")
    async def make_backup(self, principal: Principal, directory: str) -> WrittenBackup:
        """Copy the whole broker to a directory of its machine; the copy is on the disk when this returns."""
        principal.require_administrator(Thing("backup", directory))
        return await self._backups.write(directory)
