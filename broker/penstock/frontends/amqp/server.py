"""Decides the calls of AMQP's clients: log-in, then the verb, then the answer or a reply code."""

from penstock.frontends.amqp.consuming import admit_consumer
from penstock.frontends.amqp.credentials import credentials_of, user_of
from penstock.frontends.amqp.errors import Refusal, refusal_of, refusal_of_a_bug, refusal_of_deleted
from penstock.frontends.amqp.topology import change
from penstock.frontends.native import Call, admit, permit_keys, vhost_of
from penstock.kit.logging import logger
from penstock.model.errors import (
    FaultError,
    NotAuthenticatedError,
    NotFoundError,
    NotLedError,
    RefusedError,
)
from penstock.native import (
    Admittable,
    EndQueues,
    Enter,
    FindLeader,
    NamesUser,
    OpenConsume,
    OpenGet,
    OpenPublish,
    PermitExchange,
    PermitKeys,
    PermitUserId,
    Question,
    Renew,
    TopologyRequest,
)
from penstock.services import NO_QUEUE, Certificate, Connection, Credentials, Principal, Services

_log = logger("amqp")


class AmqpProtocol:
    """Implements `frontends.native.Decider`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def decide(self, call: Call, question: Question, connection: Connection) -> None:
        is_open = call.again or isinstance(question, PermitExchange | PermitUserId | PermitKeys)
        user = user_of(call.authorization)
        try:
            if isinstance(question, EndQueues):
                await self._services.sessions.end_queues(connection.id)
                call.admit("", NO_QUEUE, "", False)
                return
            if isinstance(question, FindLeader):
                await self._find_leader(call, question, connection)
                return
            credentials = credentials_of(call.authorization, call.certificate)
            if isinstance(question, Renew):
                renewed = await self._services.sessions.renew_log_in(credentials, connection)
                call.admit("", NO_QUEUE, renewed, False)
                return
            if isinstance(question, NamesUser):
                await self._refuse_unless_named(credentials, connection)
                call.admit("", NO_QUEUE, "", False)
                return
            principal = await self._services.sessions.log_in(credentials, connection, is_open=is_open)
            user = principal.name
            await self._answer(call, question, principal)
        except NotAuthenticatedError as refusal:
            name = refusal.thing.name
            is_gone = call.again and name and name not in connection.users
            _refuse(call, refusal_of_deleted(f"user '{name}'") if is_gone else refusal_of(refusal))
        except RefusedError as refusal:
            is_missing = isinstance(refusal, NotFoundError) and refusal.thing.kind == "vhost"
            # OpenPublish enters the virtual host. Any other question is of a connection that is in it.
            is_gone = is_missing and (call.again or not isinstance(question, OpenPublish))
            _refuse(call, refusal_of_deleted(f"vhost '{refusal.thing.name}'") if is_gone else refusal_of(refusal, user))
        except NotLedError as elsewhere:
            _refuse(call, refusal_of(elsewhere))
        except FaultError as fault:
            _log.warning("a call met a fault", question=type(question).__name__, fault=str(fault))
            _refuse(call, refusal_of(fault))

    def refuse_for_a_bug(self, call: Call) -> None:
        _refuse(call, refusal_of_a_bug())

    async def _refuse_unless_named(self, credentials: Credentials, connection: Connection) -> None:
        sessions = self._services.sessions
        if not isinstance(credentials, Certificate) or not await sessions.names_user(credentials, connection):
            raise NotAuthenticatedError("", "log in with a user and a password")

    async def _find_leader(self, call: Call, question: FindLeader, connection: Connection) -> None:
        admission, vhost = self._services.admission, vhost_of(question.vhost)
        if call.again:
            await admission.check_leader(vhost, question.known)
            call.found_leader(question.known)
        else:
            call.found_leader(await admission.other_leader(connection, vhost, question.known))

    async def _answer(self, call: Call, question: Question, principal: Principal) -> None:
        services = self._services
        match question:
            case Enter():
                call.admit("", NO_QUEUE, principal.name, False)
            case PermitKeys():
                call.permit_keys(await permit_keys(services, principal, question))
            case OpenPublish(vhost=vhost):
                # The first one of a connection enters the virtual host; a later one publishes. Asked again, the
                # connection ends where another broker leads by now: a client that connects again is relayed there.
                is_entering = not call.again and not principal.connection.is_in(vhost_of(vhost))
                admission = await services.admission.open_publisher(
                    principal, vhost_of(vhost), again=call.again, is_entering=is_entering
                )
                call.admit(admission.vhost, admission.queue_id, principal.name, admission.by_key)
            case _ if isinstance(question, TopologyRequest):
                call.changed(*await change(services, principal, question))
            case OpenConsume() | OpenGet():
                call.admit(*await admit_consumer(services, principal, question, again=call.again))
            case _:
                assert isinstance(question, Admittable), "the listener for AMQP asks nothing else"
                admission = await admit(services, principal, question, again=call.again)
                call.admit(admission.vhost, admission.queue_id, principal.name, admission.by_key)


def _refuse(call: Call, refusal: Refusal) -> None:
    call.refuse_kind(refusal.kind, refusal.text, refusal.details)
