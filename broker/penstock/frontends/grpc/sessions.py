"""Streams that outlive the credentials they were opened with. A token that ends takes its streams along: publishers are
asked again, and refused. Unless a newer token of the same person came on the same connection meanwhile: then it counts
in the old one's place. gRPC sends metadata once a stream, so the newer token comes by a call of its own."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.auth import Person
from penstock.kit.clock import Clock
from penstock.model.errors import NotAuthenticatedError, PreconditionFailedError, Thing

Later = Callable[[float, Callable[[], None]], asyncio.TimerHandle]
"""Calls back after some seconds; what it gives can be cancelled."""


@dataclass(slots=True)
class _Session:
    """Of one connection: who opened streams with which credentials, and the newest word on who they are."""

    names: dict[str, str] = field(default_factory=dict)
    newest: dict[str, Person] = field(default_factory=dict)
    timers: list[asyncio.TimerHandle] = field(default_factory=list)


class Sessions:
    """`forget` makes streams ask again what they may do; it is called when a token ends."""

    def __init__(self, clock: Clock, later: Later, forget: Callable[[], None]) -> None:
        self._clock = clock
        self._later = later
        self._forget = forget
        self._by_connection: dict[int, _Session] = {}

    def opened(self, connection: int, authorization: str, person: Person) -> None:
        """A stream was admitted. Only what ends has to be watched."""
        if person.expires_at_ms is None:
            return
        session = self._by_connection.setdefault(connection, _Session())
        if authorization in session.names:
            return
        session.names[authorization] = person.name
        session.newest.setdefault(person.name, person)
        self._watch(session, person)

    def renewed(self, connection: int, person: Person) -> None:
        """Raises PreconditionFailedError when this connection has no streams of that person that could end."""
        session = self._by_connection.get(connection)
        if session is None or person.name not in session.newest or person.expires_at_ms is None:
            raise PreconditionFailedError(
                Thing("user", person.name),
                "has no stream on this connection that was opened with a token",
                "call this on the connection of the streams, with a token of the same user",
            )
        session.newest[person.name] = person
        self._watch(session, person)
        self._forget()

    def newest(self, connection: int, authorization: str) -> Person | None:
        """Who a stream is by the newest token, or None when the one it was opened with is all there is. Raises
        NotAuthenticatedError when the newest has ended too."""
        session = self._by_connection.get(connection)
        name = session.names.get(authorization) if session is not None else None
        if session is None or name is None:
            return None
        person = session.newest[name]
        if person.expires_at_ms is not None and self._clock.now_ms() >= person.expires_at_ms:
            raise NotAuthenticatedError(name, "open a new stream with a new token: the time of this one is over")
        return person

    def disconnected(self, connection: int) -> None:
        session = self._by_connection.pop(connection, None)
        for timer in session.timers if session is not None else ():
            timer.cancel()

    def _watch(self, session: _Session, person: Person) -> None:
        assert person.expires_at_ms is not None
        seconds = max(0.0, (person.expires_at_ms - self._clock.now_ms()) / 1_000)
        session.timers = [timer for timer in session.timers if not timer.cancelled()]
        session.timers.append(self._later(seconds, self._forget))
