"""Holds the limits of users: changed one after another, each on the disk before it counts."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from penstock.kit.logging import logger
from penstock.kit.tasks import spawn
from penstock.model.errors import FaultError, RefusedError, StorageError, Thing
from penstock.model.limits import NO_LIMITS, Holder, Limits, read_limits
from penstock.storage.limits_json import USER_LIMITS, read_user_limits_file, write_limits_file

_log = logger("limits")
_THING = Thing("file", USER_LIMITS)


class LimitsOfUsers:
    """Implements `services.ports.LimitsOfUsers`. The lock keeps writings in order.

    Each writing is a task of its own, so that it ends also when the call that waits for it is cancelled by a stop.
    """

    def __init__(self, path: Path, limits: Mapping[str, Limits]) -> None:
        self._path = path
        self._limits = dict(limits)
        self._writing = asyncio.Lock()
        self._writings: set[asyncio.Task[None]] = set()

    @classmethod
    def open(cls, path: Path) -> "LimitsOfUsers":
        """Blocks. Raises StorageError."""
        try:
            limits = {
                user: read_limits(Holder.USER, user, written) for user, written in read_user_limits_file(path).items()
            }
        except RefusedError as refusal:
            thing = Thing("file", str(path))
            raise StorageError(thing, f"is invalid: {refusal}", "correct it, then start again") from refusal
        return cls(path, limits)

    def all(self) -> Mapping[str, Limits]:
        """Return the limits of all users that have any."""
        return self._limits

    def find(self, user: str) -> Limits:
        return self._limits.get(user, NO_LIMITS)

    async def set(self, user: str, limits: Limits) -> None:
        await self.set_all({user: limits})

    async def set_all(self, changes: Mapping[str, Limits]) -> int:
        """Set the limits of several users in one writing; return how many changed."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        writing = spawn(self._write(changes, done), name="user limits")
        self._writings.add(writing)
        writing.add_done_callback(self._writings.discard)
        return await done

    async def drained(self) -> None:
        """Wait until nothing is being written."""
        while self._writings:
            await asyncio.wait(set(self._writings))

    async def _write(self, changes: Mapping[str, Limits], done: "asyncio.Future[int]") -> None:
        try:
            count = await self._written(changes)
            if not done.done():
                done.set_result(count)
        except FaultError as fault:
            if done.done():
                _log.warning("limits of users were not written", users=len(changes), fault=str(fault))
            else:
                done.set_exception(fault)
        finally:
            if not done.done():  # a bug, or the end of the loop
                done.set_exception(StorageError(_THING, "could not be changed", "see the broker's log"))

    async def _written(self, changes: Mapping[str, Limits]) -> int:
        async with self._writing:
            changed = {user: limits for user, limits in changes.items() if self.find(user) != limits}
            if not changed:
                return 0
            wanted = {user: limits for user, limits in {**self._limits, **changed}.items() if limits != NO_LIMITS}
            written = {user: limits.written() for user, limits in wanted.items()}
            await asyncio.to_thread(write_limits_file, self._path, written)
            self._limits = wanted
            return len(changed)

    async def forget(self, user: str) -> None:
        """Delete the limits of a user, so that a later user of the same name does not inherit them."""
        await self.set_all({user: NO_LIMITS})
