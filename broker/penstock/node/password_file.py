"""The file with the administrator's password: read when the broker starts and checked while it runs.

Kubernetes mounts a Secret so, and writes the file again some time after the Secret changed. An empty or unreadable file
changes nothing, except that a broker without users cannot start with it. The service of the administrator decides what
a password changes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from penstock.identity.digest_bounds import PASSWORD_BYTES_MAX
from penstock.kit.logging import logger
from penstock.model.errors import FaultError, RefusedError
from penstock.node.config import StartError

LOOK_SECONDS: Final = 5.0
_log = logger("node")


class PasswordFile:
    """`keep` gets the password each time it is read; it is cheap when nothing changed."""

    def __init__(self, path: Path, keep: Callable[[str], Awaitable[None]]) -> None:
        self._path = path
        self._keep = keep
        self._problem = ""

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Read the file and pass on its password. A problem is logged once and retried at the next look."""
        try:
            password = await asyncio.to_thread(read_password, self._path)
            await self._keep(password)
        except StartError as error:
            self._warn("the password file cannot be used; the password stays as it was", str(error))
        except (FaultError, RefusedError) as error:
            self._warn("the administrator cannot be changed to what the password file says", str(error))
        else:
            self._problem = ""

    def _warn(self, event: str, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            _log.warning(event, reason=problem)


def read_password(path: Path) -> str:
    """Return the first line of a file. Blocks. Raises StartError naming the file and what is wrong with it."""
    try:
        with path.open("rb") as file:
            content = file.read(PASSWORD_BYTES_MAX + 2)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise StartError(f"default_password_file {path} cannot be read: {why}") from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StartError(f"default_password_file {path} is not UTF-8; save it as UTF-8") from error
    password = text.removesuffix("\n").removesuffix("\r")
    if not password:
        raise StartError(f"default_password_file {path} is empty; write a password into it")
    if "\n" in password or len(password.encode()) > PASSWORD_BYTES_MAX:
        raise StartError(
            f"default_password_file {path} has more than one line or {PASSWORD_BYTES_MAX} bytes; write one password"
        )
    return password
