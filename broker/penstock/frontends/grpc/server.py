"""Decides the calls of gRPC's clients: log-in, then the verb, then the answer or a status."""

from penstock.frontends.grpc.archive_calls import read_archive
from penstock.frontends.grpc.calls import answer_call
from penstock.frontends.grpc.credentials import credentials_of
from penstock.frontends.grpc.errors import Refusal, refusal_of, refusal_of_a_bug
from penstock.frontends.grpc.streams import describe, open_stage
from penstock.frontends.native import Call, admit, permit_keys
from penstock.kit.logging import logger
from penstock.model.errors import FaultError, RefusedError
from penstock.native import (
    DescribeStreams,
    EndQueues,
    Enter,
    FindLeader,
    NamesUser,
    OpenStage,
    PermitExchange,
    PermitKeys,
    PermitUserId,
    Question,
    ReadArchive,
    Renew,
    TopologyRequest,
    UnaryCall,
)
from penstock.services import NO_QUEUE, Connection, Principal, Services

_log = logger("grpc")


class GrpcProtocol:
    """Implements `frontends.native.Decider`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def decide(self, call: Call, question: Question, connection: Connection) -> None:
        principal = await self._logged_in(call, question, connection)
        if principal is None:
            return
        try:
            await self._answer(call, question, principal)
        except RefusedError as refusal:
            _refuse(call, refusal_of(refusal))
        except FaultError as fault:
            name = question.method if isinstance(question, UnaryCall) else type(question).__name__
            _log.warning("a call met a fault", method=name, fault=str(fault))
            _refuse(call, refusal_of(fault))

    def refuse_for_a_bug(self, call: Call) -> None:
        _refuse(call, refusal_of_a_bug())

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
            case FindLeader():
                call.found_leader(None)
            case Enter() | Renew() | NamesUser() | EndQueues():
                # Any user may send a large request. This listener does not ask the others.
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
                assert not isinstance(question, TopologyRequest), "the listener for gRPC has unary methods for that"
                admission = await admit(services, principal, question, again=call.again)
                admitted = (admission.vhost, admission.queue_id, principal.name, admission.by_key)
                call.admit(*admitted, admission.replica)


def _refuse(call: Call, refusal: Refusal) -> None:
    call.refuse(refusal.code, refusal.message, refusal.details)
