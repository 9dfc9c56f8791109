"""Streams that outlive the tokens they were opened with.

When a token expires, the streams of its connection are authorized again and refused. If a newer token of the same user
came on the same connection meanwhile, it counts instead: gRPC sends credentials once a stream, so the newer token comes
by a call of its own.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from penstock.identity import Identity
from penstock.kit.clock import Clock
from penstock.model.errors import NotAuthenticatedError, PreconditionFailedError, Thing
from penstock.model.names import ConnectionId
from penstock.services.principal import Credentials, Principal, digest_of

Later = Callable[[float, Callable[[], None]], asyncio.TimerHandle]
"""Calls back after some seconds; what it gives can be cancelled."""

LOOK_SECONDS_MAX: Final = 60.0
"""A timer does not hear that the machine's time was set: tokens are looked at this often."""

CREDENTIALS_MAX: Final = 1_024
"""Of one connection. A stream whose credentials are forgotten goes by the token that it was opened with."""


@dataclass(slots=True)
class _Session:
    """The users that opened streams on one connection, with their credentials and newest identities.

    Credentials are kept as digests, the most recently used last.
    """

    connection: ConnectionId
    names: OrderedDict[bytes, str] = field(default_factory=OrderedDict)
    newest: dict[str, Identity] = field(default_factory=dict)
    timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict)


class TokenSessions:
    """`changed` is called with the connection whose streams have to ask again whether they may go on.

    `refresh_keys` is called while there are streams with tokens: keys that the issuer removes end them.
    """

    def __init__(
        self,
        clock: Clock,
        later: Later,
        changed: Callable[[ConnectionId], None],
        refresh_keys: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._later = later
        self._changed = changed
        self._refresh_keys = refresh_keys
        self._by_connection: dict[ConnectionId, _Session] = {}

    def opened(self, principal: Principal) -> None:
        """Watch a token that a stream was opened with, while its connection is open."""
        identity, mark = principal.identity, principal.mark
        if identity.expires_at_ms is None or principal.connection.has_ended:
            return
        session = self._by_connection.setdefault(principal.connection_id, _Session(principal.connection_id))
        if mark in session.names:
            session.names.move_to_end(mark)
            return
        if len(session.names) >= CREDENTIALS_MAX:
            session.names.popitem(last=False)
        session.names[mark] = identity.name
        newest = session.newest.get(identity.name)
        if newest is None or (newest.expires_at_ms or 0) < identity.expires_at_ms:
            session.newest[identity.name] = identity
            self._watch(session, identity.name)

    def renewed(self, connection: ConnectionId, identity: Identity) -> None:
        """Record a newer token.

        Raises PreconditionFailedError when this connection has no streams of that user that could expire.
        """
        session = self._by_connection.get(connection)
        if session is None or identity.name not in session.newest or identity.expires_at_ms is None:
            raise PreconditionFailedError(
                Thing("user", identity.name),
                "opened no stream with a token on this connection",
                "call this on the connection of the streams, with a token of the same user",
            )
        session.newest[identity.name] = identity
        self._watch(session, identity.name)
        self._changed(connection)

    def has_any(self, connection: ConnectionId) -> bool:
        """Return whether a stream of this connection was opened with a token."""
        return connection in self._by_connection

    def newest(self, connection: ConnectionId, credentials: Credentials) -> Identity | None:
        """Return the identity of a stream by its newest token, or None if only the token that opened it exists.

        Raises NotAuthenticatedError when the newest token has expired too.
        """
        session = self._by_connection.get(connection)
        if session is None:
            return None
        mark = digest_of(credentials)
        name = session.names.get(mark)
        if name is None:
            return None
        session.names.move_to_end(mark)
        identity = session.newest[name]
        if self._milliseconds_left(identity) <= 0:
            raise NotAuthenticatedError(name, "open a new stream with a new token: this one has expired")
        return identity

    def keys_removed(self) -> None:
        """Let all streams with tokens ask again: those whose token was signed with a removed key end."""
        for connection in list(self._by_connection):
            self._changed(connection)

    def end(self, connection: ConnectionId) -> None:
        session = self._by_connection.pop(connection, None)
        for timer in session.timers.values() if session is not None else ():
            timer.cancel()

    def _watch(self, session: _Session, name: str) -> None:
        """Check the streams again when the newest token of a name should have expired."""
        timer = session.timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        seconds = max(0, self._milliseconds_left(session.newest[name])) / 1_000
        session.timers[name] = self._later(min(seconds, LOOK_SECONDS_MAX), lambda: self._look(session, name))

    def _look(self, session: _Session, name: str) -> None:
        self._refresh_keys()
        if self._milliseconds_left(session.newest[name]) > 0:
            self._watch(session, name)
        else:
            del session.timers[name]
            self._changed(session.connection)

    def _milliseconds_left(self, identity: Identity) -> int:
        assert identity.expires_at_ms is not None
        return identity.expires_at_ms - self._clock.now_ms()
