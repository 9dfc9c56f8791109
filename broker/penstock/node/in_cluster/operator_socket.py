"""A Unix socket in the data directory, for commands that have to work while this broker serves no clients.

A broker that waits for its cluster has no users to ask: they may be what is lost. So whoever may use the data directory
may use the socket, which the kernel checks: the user of the broker's process, and root.

A connection has one request and one answer, each a line of JSON. Limits: REQUEST_BYTES_MAX, and REQUEST_S to send it.
"""

import asyncio
import json
import os
import pwd
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from penstock.kit.logging import logger
from penstock.model.errors import FaultError, RefusedError, StorageError, Thing
from penstock.node.operator_calls import SOCKET, short_path

REQUEST_BYTES_MAX: Final = 64 * 1024
REQUEST_S: Final = 10.0
_PEER: Final = struct.Struct("iII")
Verb = Callable[[Mapping[str, Any], str], Awaitable[Mapping[str, Any]]]
"""Takes the fields of a request and the name of the system's user who asks. Raises RefusedError and FaultError."""
_log = logger("cluster")


class OperatorSocket:
    """It runs from `start` to `close`."""

    def __init__(self, directory: Path, verbs: Mapping[str, Verb]) -> None:
        self._directory = directory
        self._verbs = verbs
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen, in place of a process before. Raises StorageError."""
        try:
            with short_path(self._directory) as path:
                (self._directory / SOCKET).unlink(missing_ok=True)
                self._server = await asyncio.start_unix_server(self._serve, path, limit=REQUEST_BYTES_MAX)
            (self._directory / SOCKET).chmod(0o600)
        except OSError as error:
            way_out = "use a file system with sockets for the data directory"
            thing = Thing("socket", str(self._directory / SOCKET))
            raise StorageError(thing, f"cannot be made: {error.strerror}", way_out) from error

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await asyncio.to_thread((self._directory / SOCKET).unlink, missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, TimeoutError, ValueError):  # ValueError: a line that is too long
                async with asyncio.timeout(REQUEST_S):
                    line = await reader.readline()
                writer.write(json.dumps(await self._answer(line, _user_of(writer))).encode() + b"\n")
                await writer.drain()
        finally:
            writer.close()

    async def _answer(self, line: bytes, user: str | None) -> Mapping[str, Any]:
        if user is None:
            return {"error": "only the user of the broker's process and root may do this"}
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            request = None
        name = request.get("verb") if isinstance(request, dict) else None
        verb = self._verbs.get(name) if isinstance(name, str) else None
        if verb is None:
            return {"error": "the broker does not know this command; use that of its version"}
        try:
            return await verb(request, user)
        except (RefusedError, FaultError) as error:
            return {"error": str(error)}


def _user_of(writer: asyncio.StreamWriter) -> str | None:
    """Return the name of the user at the other end; None for one that may not ask."""
    sock = writer.get_extra_info("socket")
    _, uid, _ = _PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    if uid not in (0, os.geteuid()):
        _log.warning("operator's command refused", uid=uid)
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
