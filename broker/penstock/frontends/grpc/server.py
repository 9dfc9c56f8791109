"""Takes from the native listener what has to be decided, and gives every call a task of its own, so that one that waits
for a sync keeps nobody waiting. How many may be under way the listener bounds. It decides nothing itself."""

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.frontends.grpc import audit
from penstock.frontends.grpc.archive_calls import read_archive
from penstock.frontends.grpc.caller import Caller, authenticate
from penstock.frontends.grpc.calls import answer_call
from penstock.frontends.grpc.context import Context
from penstock.frontends.grpc.errors import Refusal, refusal_of, refusal_of_a_bug
from penstock.frontends.grpc.ports import Call, Listener
from penstock.frontends.grpc.staging_calls import open_stage
from penstock.frontends.grpc.streams import NO_QUEUE, admit, admit_keys, keys_of
from penstock.identity import Person, UndecidedError
from penstock.kit.logging import logger
from penstock.kit.tasks import spawn
from penstock.model.errors import FaultError, NotAuthenticatedError, RefusedError, StoppedError, Thing
from penstock.model.names import ConnectionId, QueueId, QueueName, VhostName

STREAMS: Final = frozenset({"publish", "consume", "read", "get"})
PERMITS: Final = frozenset({"permit", "keys"})
ENDING: Final = STREAMS | {"stage"}
"""These end with the token that opened them."""
QUESTIONS_MAX: Final = 8
"""What one call may have to ask another server, one question after another: a vhost, and a few things in it."""
_log = logger("grpc")


class GrpcFrontend:
    """Runs between `start` and `stop`."""

    def __init__(self, listener: Listener, context: Context) -> None:
        self._listener = listener
        self._context = context
        self._under_way: dict[int, set[asyncio.Task[None]]] = {}  # by connection

    def start(self) -> None:
        asyncio.get_running_loop().add_reader(self._listener.wake_fd, self._take)
        self._take()  # what came before anybody looked

    def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listener.wake_fd)

    def _take(self) -> None:
        for call in self._listener.take():
            if call.kind == "disconnected":
                under_way = self._under_way.pop(call.connection, set())
                _forget(self._context, call.connection)
                spawn(_disconnected(self._context, call.connection, under_way), name="grpc disconnected")
            elif call.kind == "unused":
                queue_id = QueueId(int.from_bytes(call.payload, "little"))
                spawn(_unused(self._context, call.vhost, call.subject, queue_id), name="grpc unused")
            else:
                self._begin(call)

    def _begin(self, call: Call) -> None:
        connection = call.connection
        task = spawn(self._decide(call), name=f"grpc {call.method or call.kind}", on_bug=_refuse_for_a_bug(call))
        self._under_way.setdefault(connection, set()).add(task)
        task.add_done_callback(lambda done: self._ended(connection, done))

    def _ended(self, connection: int, task: asyncio.Task[None]) -> None:
        tasks = self._under_way.get(connection)
        if tasks is None:
            return
        tasks.discard(task)
        if not tasks:
            del self._under_way[connection]

    async def _decide(self, call: Call) -> None:
        try:
            person = await self._authenticated(call)
            if person is None:
                return
            self._count(call, person)
            if self._context.connections.is_new_user(call.connection, person.name):
                audit.log_in(person.name, call.peer, call.connection)
            caller = Caller(person, ConnectionId(call.connection), self._context.accounts)
            questions_max = QUESTIONS_MAX + (len(keys_of(call)) if call.kind == "keys" else 0)
            for _ in range(questions_max):
                try:
                    await self._answer(call, caller)
                    break
                except UndecidedError as undecided:
                    await undecided.ask()
            else:
                cause = f"{questions_max} questions to another server had no lasting answer"
                raise StoppedError(Thing("permissions", person.name), cause)
        except RefusedError as refusal:
            _refuse(call, refusal_of(refusal))
        except FaultError as fault:
            _log.warning("a call met a fault", method=call.method or call.kind, fault=str(fault))
            _refuse(call, refusal_of(fault))

    async def _authenticated(self, call: Call) -> Person | None:
        """Return the principal, or None after a refusal. Failures are logged together: any client can cause them."""
        try:
            return await _who_calls(self._context, call)
        except NotAuthenticatedError as refusal:
            if not call.again:
                self._context.log_ins.refused(refusal.thing.name, call.peer)
            _refuse(call, refusal_of(refusal))
        except FaultError as fault:
            self._context.log_ins.undecided(str(fault.__cause__ or fault), call.peer)
            _refuse(call, refusal_of(fault))
        return None

    def _count(self, call: Call, person: Person) -> None:
        """Administrators administer also above their limit, or nobody could lift it."""
        if call.kind == "call" and person.is_administrator:
            return
        limit = self._context.user_limits.find(person.name).connections_max
        self._context.connections.log_in(call.connection, person.name, limit)

    async def _answer(self, call: Call, caller: Caller) -> None:
        """Raises UndecidedError before anything has changed."""
        if call.kind == "call":
            answer = await answer_call(self._context, caller, call.method, call.payload, call.peer)
            if isinstance(answer, Refusal):
                _refuse(call, answer)
            else:
                call.answer(answer)
            return
        if call.kind == "enter":
            call.admit("", NO_QUEUE, caller.user.name, False)  # being somebody is enough to send a large request
            return
        if call.kind == "archive":
            call.answer(await read_archive(self._context, caller, call.payload))
            return
        if call.kind == "keys":
            call.answer(admit_keys(self._context, caller, call))
            return
        if call.kind == "stage":
            place = await open_stage(self._context, caller, call)
            self._opened(call, caller)
            call.answer(place)
            return
        admission = await admit(self._context, caller, call)
        if call.kind in STREAMS and not call.again:
            limit = self._context.vhosts.get(admission.vhost).limits.connections_max
            self._context.connections.enter(call.connection, admission.vhost, limit)
        self._opened(call, caller)
        call.admit(admission.vhost, admission.queue_id, caller.user.name, admission.by_key)

    def _opened(self, call: Call, caller: Caller) -> None:
        if call.kind in ENDING and not call.again:
            self._context.sessions.opened(call.connection, call.authorization, caller.user)


async def _who_calls(context: Context, call: Call) -> Person:
    """A stream may have got a newer token since it was opened."""
    if call.kind in PERMITS or call.again:
        newest = context.sessions.newest(call.connection, call.authorization)
        if newest is not None:
            return newest
    return await authenticate(context.sign_in, call.authorization, call.peer, call.certificate, call.connection)


def _refuse(call: Call, refusal: Refusal) -> None:
    call.refuse(refusal.code, refusal.message, refusal.details)


def _refuse_for_a_bug(call: Call) -> Callable[[Exception], None]:
    def refuse(_: Exception) -> None:
        _refuse(call, refusal_of_a_bug())

    return refuse


def _forget(context: Context, connection: int) -> None:
    context.sessions.disconnected(connection)
    context.connections.disconnected(connection)


async def _disconnected(context: Context, connection: int, under_way: set[asyncio.Task[None]]) -> None:
    """Its queues go at once, and again when what it still had under way is done: that may be declaring another one."""
    await asyncio.gather(_end_queues(context, connection), _end_rest(context, connection, under_way))


async def _end_rest(context: Context, connection: int, under_way: set[asyncio.Task[None]]) -> None:
    """A call that was being decided may have counted the connection after it ended."""
    if under_way:
        await asyncio.wait(under_way)
        _forget(context, connection)  # it may have been counted only then
        await _end_queues(context, connection)


async def _end_queues(context: Context, connection: int) -> None:
    try:
        await context.vhosts.connection_closed(ConnectionId(connection))
    except FaultError as fault:
        _log.warning("exclusive queues stay after their connection", fault=str(fault))


async def _unused(context: Context, vhost: str, queue: str, queue_id: QueueId) -> None:
    try:
        await context.vhosts.get(VhostName(vhost)).queue_unused(QueueName(queue), queue_id)
    except RefusedError:
        return  # queue or vhost went first
    except FaultError as fault:
        _log.warning("an unused queue stays", queue=queue, vhost=vhost, fault=str(fault))
