"""Holds the limits of users: changed one after another, each on the disk before it counts."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from penstock.identity.user_limits import NO_USER_LIMITS, UserLimits, read_user_limits
from penstock.model.errors import RefusedError, StorageError, Thing
from penstock.storage.user_limits_json import read_user_limits_file, write_user_limits_file


class LimitsOfUsers:
    """Implements `services.ports.LimitsOfUsers`. The lock keeps writings in order."""

    def __init__(self, path: Path, limits: Mapping[str, UserLimits]) -> None:
        self._path = path
        self._limits = dict(limits)
        self._writing = asyncio.Lock()

    @classmethod
    def open(cls, path: Path) -> "LimitsOfUsers":
        """Blocks. Raises StorageError."""
        try:
            limits = {user: read_user_limits(user, written) for user, written in read_user_limits_file(path).items()}
        except RefusedError as refusal:
            thing = Thing("file", str(path))
            raise StorageError(thing, f"is invalid: {refusal}", "correct it, then start again") from refusal
        return cls(path, limits)

    def all(self) -> Mapping[str, UserLimits]:
        """Of those who have any."""
        return self._limits

    def find(self, user: str) -> UserLimits:
        return self._limits.get(user, NO_USER_LIMITS)

    async def set(self, user: str, limits: UserLimits) -> None:
        await self.set_all({user: limits})

    async def set_all(self, changes: Mapping[str, UserLimits]) -> int:
        """In one writing; gives how many changed."""
        async with self._writing:
            changed = {user: limits for user, limits in changes.items() if self.find(user) != limits}
            if not changed:
                return 0
            wanted = {user: limits for user, limits in {**self._limits, **changed}.items() if limits != NO_USER_LIMITS}
            written = {user: limits.written() for user, limits in wanted.items()}
            await asyncio.to_thread(write_user_limits_file, self._path, written)
            self._limits = wanted
            return len(changed)

    async def forget(self, user: str) -> None:
        """Delete the limits of a user, so that a later user of the same name does not inherit them."""
        await self.set_all({user: NO_USER_LIMITS})
