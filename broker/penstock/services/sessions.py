"""Log-ins, and the state that lasts as long as a connection.

This is the counts it holds, the tokens of its streams, and its exclusive queues.
"""

import asyncio

from penstock.identity import Identity
from penstock.kit.logging import logger
from penstock.kit.peers import Source, is_loopback
from penstock.model.errors import FaultError, NotAuthenticatedError
from penstock.model.names import ConnectionId
from penstock.services import audit
from penstock.services.connections import Connection, Connections
from penstock.services.log_ins import LogIns
from penstock.services.ports import LimitsOfUsers, SignIn
from penstock.services.principal import (
    CatchUp,
    Certificate,
    Credentials,
    NoCredentials,
    Password,
    Principal,
    Token,
    digest_of,
)
from penstock.services.token_sessions import TokenSessions
from penstock.services.verbs import changing
from penstock.vhost.all_vhosts import AllVhosts

_log = logger("sessions")


class SessionVerbs:
    """Makes principals from credentials."""

    def __init__(
        self,
        sign_in: SignIn,
        connections: Connections,
        tokens: TokenSessions,
        user_limits: LimitsOfUsers,
        log_ins: LogIns,
        vhosts: AllVhosts,
    ) -> None:
        self._sign_in = sign_in
        self._connections = connections
        self._tokens = tokens
        self._user_limits = user_limits
        self._log_ins = log_ins
        self._vhosts = vhosts
        self.catch_up: CatchUp | None = None
        """In a cluster, principals call it to bring this broker up to date."""

    async def log_in(
        self, credentials: Credentials, connection: Connection, *, is_open: bool = False, is_administering: bool = False
    ) -> Principal:
        """Return the principal that the credentials name.

        With `is_open` they are those of an open stream: the newest token of the same user counts. Administrators may
        open connections for administration above their limit, so that they can raise it. Raises NotAuthenticatedError,
        PreconditionFailedError above the limit, and faults.
        """
        identity = await self._identified(credentials, connection, is_open=is_open)
        mark = b"" if identity.expires_at_ms is None else digest_of(credentials)
        principal = Principal(identity, connection, mark, self.catch_up)
        if not (is_administering and principal.is_administrator):
            limit = self._user_limits.find(identity.name).connections_max
            self._connections.log_in(connection, identity.name, limit)
        if self._connections.is_new_user(connection, identity.name):
            audit.log_in(principal)
        return principal

    async def renew_log_in(self, credentials: Credentials, connection: Connection) -> str:
        """Let newer credentials take the place of the ones by which the user of a connection has logged in.

        A token takes the place of a token, and a password that of a password. Return the user's name, or an empty one
        when the older credentials count on: after a log-in that does not expire, whatever else is sent, as in RabbitMQ.
        After a log-in by a token anything but a newer token of the same user is refused: NotAuthenticatedError.
        """
        had_token = self._tokens.has_any(connection.id)
        try:
            identity = await self._identified(credentials, connection, is_open=False)
        except (NotAuthenticatedError, FaultError):
            if had_token:
                raise
            return ""
        is_token = identity.expires_at_ms is not None
        if is_token != had_token or identity.name not in connection.users:
            if had_token:
                raise NotAuthenticatedError(identity.name, "send a token of the user that has logged in")
            return ""
        if is_token:
            await self.renew_token(Principal(identity, connection, digest_of(credentials)))
        return identity.name

    async def names_user(self, certificate: Certificate, connection: Connection) -> bool:
        """Return whether a log-in with this certificate would succeed now. It is none, and is not logged."""
        try:
            await authenticate(self._sign_in, certificate, connection)
        except NotAuthenticatedError:
            return False
        return True

    @changing("RefreshToken")
    async def renew_token(self, principal: Principal) -> int:
        """Let the token of this call count for the streams that the same user opened on this connection.

        Return the time when it expires, in milliseconds.
        """
        self._tokens.renewed(principal.connection_id, principal.identity)
        return principal.identity.expires_at_ms or 0

    async def end(self, number: ConnectionId) -> None:
        """Release what a connection held. Calls of it that are still under way find that it has ended."""
        self._connections.end(number)
        self._tokens.end(number)
        await self.end_queues(number)

    async def end_queues(self, number: ConnectionId) -> None:
        """Delete the exclusive queues of a connection that has ended."""
        try:
            await self._vhosts.connection_closed(number)
        except FaultError as fault:
            _log.warning("exclusive queues stay after their connection", fault=str(fault))

    async def _identified(self, credentials: Credentials, connection: Connection, *, is_open: bool) -> Identity:
        """Return who it is. Failures are logged together: any client can cause them."""
        try:
            newest = self._tokens.newest(connection.id, credentials) if is_open else None
            if newest is not None:
                self._sign_in.check_open(newest)
            return newest or await authenticate(self._sign_in, credentials, connection)
        except NotAuthenticatedError as refusal:
            if not is_open:
                self._log_ins.refused(refusal.thing.name, connection.peer)
            await asyncio.sleep(max(0.0, refusal.due - asyncio.get_running_loop().time()))
            raise
        except FaultError as fault:
            self._log_ins.undecided(str(fault.__cause__ or fault), connection.peer)
            raise


async def authenticate(sign_in: SignIn, credentials: Credentials, connection: Connection) -> Identity:
    """Return who the credentials name. Raises NotAuthenticatedError and faults."""
    is_near = is_loopback(connection.peer)
    match credentials:
        case Password(user, password):
            source = Source.of(connection.peer, connection.id)
            return await sign_in.log_in(user, password, is_loopback=is_near, source=source)
        case Token(text):
            return await sign_in.log_in_by_token(text, is_loopback=is_near)
        case Certificate(der):
            return await sign_in.log_in_by_certificate(der, is_loopback=is_near)
        case NoCredentials(way_out):
            raise NotAuthenticatedError("", way_out)
