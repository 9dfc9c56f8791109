"""Decides the calls of AMQP's clients: log-in, then the verb, then the answer or a reply code."""

from contextlib import suppress

from penstock.frontends.amqp.consuming import admit_consumer
from penstock.frontends.amqp.credentials import credentials_of, user_of
from penstock.frontends.amqp.errors import Refusal, refusal_of, refusal_of_a_bug, refusal_of_deleted
from penstock.frontends.amqp.topology import change
from penstock.frontends.native import Call, admit, permit_keys
from penstock.kit.logging import logger
from penstock.model.errors import (
    FaultError,
    NotAuthenticatedError,
    NotFoundError,
    PreconditionFailedError,
    RefusedError,
)
from penstock.native import (
    Admittable,
    Enter,
    OpenConsume,
    OpenGet,
    PermitExchange,
    PermitKeys,
    PermitUserId,
    Question,
    Renew,
    TopologyRequest,
)
from penstock.services import NO_QUEUE, Connection, Credentials, Principal, Services

_log = logger("amqp")


class AmqpProtocol:
    """Implements `frontends.native.Decider`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def decide(self, call: Call, question: Question, connection: Connection) -> None:
        is_open = call.again or isinstance(question, PermitExchange | PermitUserId | PermitKeys)
        user = user_of(call.authorization)
        try:
            credentials = credentials_of(call.authorization, call.certificate)
            if isinstance(question, Renew):
                call.admit("", NO_QUEUE, await self._renewed(credentials, connection), False)
                return
            principal = await self._services.sessions.log_in(credentials, connection, is_open=is_open)
            user = principal.name
            await self._answer(call, question, principal)
        except NotAuthenticatedError as refusal:
            name = refusal.thing.name
            is_gone = call.again and name and name not in connection.users
            _refuse(call, refusal_of_deleted(f"user '{name}'") if is_gone else refusal_of(refusal))
        except RefusedError as refusal:
            is_gone = call.again and isinstance(refusal, NotFoundError) and refusal.thing.kind == "vhost"
            _refuse(call, refusal_of_deleted(f"vhost '{refusal.thing.name}'") if is_gone else refusal_of(refusal, user))
        except FaultError as fault:
            _log.warning("a call met a fault", question=type(question).__name__, fault=str(fault))
            _refuse(call, refusal_of(fault))

    def refuse_for_a_bug(self, call: Call) -> None:
        _refuse(call, refusal_of_a_bug())

    async def _renewed(self, credentials: Credentials, connection: Connection) -> str:
        """Return who shows newer credentials, which has to be who logged in; its open streams go on with them.

        A log-in that does not expire stays as it is when they are wrong, as in RabbitMQ: the name is empty then.
        """
        sessions, known = self._services.sessions, frozenset(connection.users)
        try:
            principal = await sessions.log_in(credentials, connection)
        except NotAuthenticatedError:
            if sessions.has_token(connection):
                raise
            return ""
        if principal.name not in known:
            raise NotAuthenticatedError(principal.name, "log in on another connection")
        with suppress(PreconditionFailedError):  # no stream was opened with a token
            await sessions.renew_token(principal)
        return principal.name

    async def _answer(self, call: Call, question: Question, principal: Principal) -> None:
        services = self._services
        match question:
            case Enter():
                call.admit("", NO_QUEUE, principal.name, False)
            case PermitKeys():
                call.permit_keys(await permit_keys(services, principal, question))
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
