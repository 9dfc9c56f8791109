"""A front end of a protocol of lines, for tests: it shows that a protocol needs nothing of the broker but its services.

A client sends `LOGIN user password`, `DECLARE vhost queue [exclusive]`, `BIND vhost exchange queue key`,
`DELETE vhost queue`, `QUEUES vhost` or `USER name password`. The answer is `+` and what was asked for, or `-` with a
code and a reason.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

from penstock.kit.tasks import spawn
from penstock.model.errors import (
    AccessRefusedError,
    FaultError,
    InvalidArgumentError,
    NotAuthenticatedError,
    NotFoundError,
    RefusedError,
    Thing,
)
from penstock.model.names import ConnectionId, exchange_name, queue_name, routing_key
from penstock.model.records import Binding, DestinationKind
from penstock.native import OpenConsumer
from penstock.services import Connection, DeclareQueue, NoCredentials, Password, Principal, Services

CODES: dict[type[Exception], int] = {
    NotAuthenticatedError: 401,
    AccessRefusedError: 403,
    NotFoundError: 404,
    RefusedError: 400,
    FaultError: 503,
}
# Beyond the numbers that the native listener counts up to.
NUMBERS = count(1 << 40)


class LineFrontend:
    """Listens on a port of its own between `start` and `stop`.

    Implements `services.Listener`: a client whose rights may have changed logs in again with the credentials that it
    sent.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._credentials: dict[int, Password] = {}
        self._principals: dict[int, Principal] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        self._services.listeners.add(self)
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()
        if self._serving:
            await asyncio.wait(self._serving)
        self._services.listeners.remove(self)

    def forget(self, vhost: str | None) -> None: ...

    def recheck(self, user: str | None, vhost: str | None) -> None:
        self._principals.clear()

    def recheck_connection(self, connection: int) -> None:
        self._principals.pop(connection, None)

    def consumers(self) -> list[OpenConsumer]:
        return []

    def close_connection(self, connection: int, /) -> bool:
        return False

    def set_quota(self, name: str, is_user: bool, limits: dict[str, int]) -> None: ...

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = spawn(self._serve(reader, writer), name="line connection")
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = writer.get_extra_info("peername")
        connection = self._services.connections.open(ConnectionId(next(NUMBERS)), f"{host}:{port}")
        try:
            while line := await reader.readline():
                writer.write(f"{await self._answer(connection, line.decode().split())}\n".encode())
                await writer.drain()
        finally:
            self._credentials.pop(connection.id, None)
            self._principals.pop(connection.id, None)
            await self._services.sessions.end(connection.id)
            writer.close()

    async def _answer(self, connection: Connection, words: list[str]) -> str:
        try:
            command, *rest = words
            if command == "LOGIN":
                self._credentials[connection.id] = Password(*rest)
                self._principals.pop(connection.id, None)
                return f"+{(await self._principal(connection)).name}"
            verbs: dict[str, Callable[..., Awaitable[object]]] = {
                "DECLARE": self._declare,
                "BIND": self._bind,
                "DELETE": self._services.topology.delete_queue,
                "QUEUES": self._queues,
                "USER": self._put_user,
            }
            answer = await verbs[command](await self._principal(connection), *rest)
            return "+" if answer is None else f"+{answer}"
        except (RefusedError, FaultError) as error:
            return f"-{next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)} {error}"
        except (KeyError, TypeError, ValueError):
            wrong = InvalidArgumentError(Thing("command", " ".join(words)), "is not understood", "read the protocol")
            return f"-400 {wrong}"

    async def _principal(self, connection: Connection) -> Principal:
        known = self._principals.get(connection.id)
        if known is None:
            credentials = self._credentials.get(connection.id) or NoCredentials("send LOGIN")
            known = self._principals[connection.id] = await self._services.sessions.log_in(credentials, connection)
        return known

    async def _declare(self, principal: Principal, vhost: str, name: str, mode: str = "") -> str:
        wanted = DeclareQueue(queue_name(name), principal.connection_id, exclusive=mode == "exclusive")
        return (await self._services.topology.declare_queue(principal, vhost, wanted)).queue.name

    async def _bind(self, principal: Principal, vhost: str, exchange: str, queue: str, key: str) -> None:
        binding = Binding(exchange_name(exchange), DestinationKind.QUEUE, queue_name(queue), routing_key(key))
        await self._services.topology.bind(principal, vhost, binding)

    async def _queues(self, principal: Principal, vhost: str) -> str:
        return " ".join(status.queue.name for status in await self._services.topology.list_queues(principal, vhost))

    async def _put_user(self, principal: Principal, name: str, password: str) -> bool:
        return await self._services.users.put_user(principal, name, password, [])
