"""Takes calls from the native listener and runs each in a task of its own.

So a call that waits for a sync does not delay the others. The listener bounds the number of calls; the services decide
them.
"""

import asyncio
from collections.abc import Callable

from penstock.frontends.grpc.archive_calls import read_archive
from penstock.frontends.grpc.calls import answer_call
from penstock.frontends.grpc.credentials import credentials_of
from penstock.frontends.grpc.errors import Refusal, refusal_of, refusal_of_a_bug
from penstock.frontends.grpc.ports import Call, Listener
from penstock.frontends.grpc.streams import admit, describe, open_stage, permit_keys
from penstock.kit.logging import logger
from penstock.kit.tasks import spawn
from penstock.model.errors import FaultError, RefusedError
from penstock.model.names import ConnectionId, QueueId
from penstock.native import (
    DescribeStreams,
    Disconnected,
    Enter,
    OpenStage,
    PermitExchange,
    PermitKeys,
    PermitUserId,
    Question,
    QueueUnused,
    ReadArchive,
    UnaryCall,
)
from penstock.services import NO_QUEUE, Connection, Principal, Services

_log = logger("grpc")


class GrpcFrontend:
    """Runs between `start` and `stop`."""

    def __init__(self, listener: Listener, services: Services) -> None:
        self._listener = listener
        self._services = services

    def start(self) -> None:
        self._services.listeners.add(self._listener)
        asyncio.get_running_loop().add_reader(self._listener.wake_fd, self._take)
        self._take()  # calls that came before this

    def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listener.wake_fd)
        self._services.listeners.remove(self._listener)

    def _take(self) -> None:
        for call in self._listener.take():
            match call.request:
                case Disconnected():
                    spawn(self._services.sessions.end(ConnectionId(call.connection)), name="grpc disconnected")
                case QueueUnused(vhost=vhost, queue=queue, queue_id=queue_id):
                    unused = self._services.topology.queue_unused(vhost, queue, QueueId(queue_id))
                    spawn(unused, name="grpc unused")
                case question:
                    connection = self._services.connections.open(ConnectionId(call.connection), call.peer)
                    deciding = self._decide(call, question, connection)
                    spawn(deciding, name=f"grpc {_name_of(question)}", on_bug=_refuse_for_a_bug(call))

    async def _decide(self, call: Call, question: Question, connection: Connection) -> None:
        principal = await self._logged_in(call, question, connection)
        if principal is None:
            return
        try:
            await self._answer(call, question, principal)
        except RefusedError as refusal:
            _refuse(call, refusal_of(refusal))
        except FaultError as fault:
            _log.warning("a call met a fault", method=_name_of(question), fault=str(fault))
            _refuse(call, refusal_of(fault))

    async def _logged_in(self, call: Call, question: Question, connection: Connection) -> Principal | None:
        """Return the principal, or None after a refusal. The services log failures: any client can cause them."""
        is_open = call.again or isinstance(question, PermitExchange | PermitUserId | PermitKeys | ReadArchive)
        credentials = credentials_of(call.authorization, call.certificate)
        try:
            return await self._services.sessions.log_in(
                credentials, connection, is_open=is_open, is_administering=isinstance(question, UnaryCall)
            )
        except (RefusedError, FaultError) as error:
            _refuse(call, refusal_of(error))
            return None

    async def _answer(self, call: Call, question: Question, principal: Principal) -> None:
        services = self._services
        match question:
            case UnaryCall(method=method, payload=payload):
                answer = await answer_call(services, principal, method, payload)
                if isinstance(answer, Refusal):
                    _refuse(call, answer)
                else:
                    call.answer(answer)
            case Enter():
                # Any user may send a large request.
                call.admit("", NO_QUEUE, principal.name, False)
            case ReadArchive():
                call.answer(await read_archive(services, principal, question))
            case DescribeStreams():
                vhost, partitions = await describe(services, principal, question, again=call.again)
                call.describe(vhost, principal.name, partitions)
            case PermitKeys():
                call.permit_keys(await permit_keys(services, principal, question))
            case OpenStage():
                stage = await open_stage(services, principal, question, again=call.again)
                target = {"exchange": stage.exchange, "routing_key": stage.routing_key}
                call.admit_stage(stage.vhost, stage.queue_id, principal.name, **target)
            case _:
                admission = await admit(services, principal, question, again=call.again)
                call.admit(admission.vhost, admission.queue_id, principal.name, admission.by_key)


def _name_of(question: Question) -> str:
    return question.method if isinstance(question, UnaryCall) else type(question).__name__


def _refuse(call: Call, refusal: Refusal) -> None:
    call.refuse(refusal.code, refusal.message, refusal.details)


def _refuse_for_a_bug(call: Call) -> Callable[[Exception], None]:
    def refuse(_: Exception) -> None:
        _refuse(call, refusal_of_a_bug())

    return refuse
