"""Connections to brokers, one per Cluster and vhost, kept until they fail or are not used for some minutes.

A broker's refusals are the client's own errors; an unreachable broker is a BrokerUnreachableError. A password is only
tried when neither it nor its digest on the broker is known to fit: trying takes one of the user's connections for a
moment, and the broker computes a costly digest. That of a random password is checked here.
"""

import hashlib
from collections.abc import Callable
from threading import Lock
from typing import Final, TypeVar

from penstock import Connection, connect
from penstock.client.bounds import Bounds
from penstock.client.errors import (
    BrokerError,
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    NotAuthenticatedError,
    PreconditionFailedError,
)
from penstock.client.sync import connect_within
from penstock.client.uri import Address, format_uri
from penstock_operator.links.digests import fits
from penstock_operator.links.listings import Listings, is_foreign

T = TypeVar("T")
CALL_SECONDS: Final = 10.0
# A digest that is seen so soon after our own change of a password is that of our password.
OURS_SECONDS: Final = 5.0
# A broker that did not answer is left alone for so long, or until `ask` gets an answer: each call to one that hangs
# takes a worker for seconds, and there may be thousands of objects to reconcile.
REST_SECONDS: Final = 10.0
# A connection that was not used for so long is closed: longer than a resync by default, and far longer than a call.
IDLE_SECONDS: Final = 660.0
# Of each answer of a broker that a Secret leads to: whoever wrote the Secret may run it. Its lists may not take the
# memory of the operator, nor a worker for as long as makes the operator's probe fail.
FOREIGN: Final = Bounds(bytes_max=4 << 20, entries_max=20_000, seconds_max=20.0)
UNREACHABLE = (ConnectionLostError, DeadlineError, ClosedError, BrokerError)


class BrokerUnreachableError(Exception):
    """The broker does not answer; the text says which and why."""


class Brokers:
    """Thread-safe. A connection is keyed by address and credentials, so a changed password makes a new one.

    What is known of a broker is kept by its `place`: the host of a Cluster, or the Secret that leads to it. Two Secrets
    share nothing, also where they lead to the same host.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        connect_to: Callable[[Address], Connection] | None = None,
    ) -> None:
        self._connect_to = connect_to
        self._clock = clock
        self._lock = Lock()
        self._open: dict[tuple[str, Address], Connection] = {}
        self._used: dict[tuple[str, Address], float] = {}
        self._looked_at = clock()
        # Place and user -> marks of the password and of its digest on the broker; and when we set which password.
        self._proven: dict[tuple[str, str], tuple[str, str]] = {}
        self._set: dict[tuple[str, str], tuple[str, float]] = {}
        self._resting: dict[str, float] = {}
        self.listings = Listings(clock, self._see_digests)

    def get(self, place: str, address: Address) -> Connection:
        """Return a connection.

        Raises BrokerUnreachableError, or NotAuthenticatedError when the broker has other credentials.
        """
        now = self._clock()
        with self._lock:
            known, until = self._open.get((place, address)), self._resting.get(place, 0.0)
            self._used[place, address] = now
            idle = self._take_idle(now)
        for connection in idle:
            connection.close()
        if now < until:
            raise BrokerUnreachableError(f"{address.target}: no answer a moment ago")
        if known is not None:
            return known
        try:
            made = self._connect(place, address)
        except UNREACHABLE as error:
            raise BrokerUnreachableError(f"{address.target}: {error}") from error
        with self._lock:
            kept = self._open.setdefault((place, address), made)
        if kept is not made:
            made.close()
        return kept

    def _connect(self, place: str, address: Address) -> Connection:
        if self._connect_to is not None:
            return self._connect_to(address)
        uri = format_uri(address)
        if is_foreign(place):
            return connect_within(FOREIGN, uri, timeout=CALL_SECONDS)
        return connect(uri, timeout=CALL_SECONDS)

    def _take_idle(self, now: float) -> list[Connection]:
        """Take out the connections that no call has used for long, such as those to vhosts that were deleted."""
        if now - self._looked_at < IDLE_SECONDS / 4:
            return []
        self._looked_at = now
        idle = [each for each, at in self._used.items() if now - at > IDLE_SECONDS]
        for each in idle:
            del self._used[each]
        return [self._open.pop(each) for each in idle if each in self._open]

    def rest(self, place: str) -> bool:
        """Leave a broker alone that did not answer; return whether that is new."""
        now = self._clock()
        with self._lock:
            is_new = now >= self._resting.get(place, now)
            if is_new:
                self._resting[place] = now + REST_SECONDS
        return is_new

    def forget(self, place: str) -> None:
        """Drop the connections after a failure, or when a Cluster goes: the next call reconnects."""
        with self._lock:
            gone = [self._open.pop(each) for each in list(self._open) if each[0] == place]
            self._used = {each: at for each, at in self._used.items() if each[0] != place}
        self.listings.forget(place)
        for connection in gone:
            connection.close()

    def leave(self, place: str) -> None:
        """Forget all about a broker in which no object is any more."""
        self.forget(place)
        with self._lock:
            self._resting.pop(place, None)
            for known in (self._proven, self._set):
                for account in [each for each in known if each[0] == place]:
                    del known[account]

    def ask(self, place: str, address: Address, question: Callable[[Connection], T]) -> T:
        """Ask over a new connection, as a client that arrives now does, and close it.

        Raises BrokerUnreachableError, or the broker's refusals.
        """
        try:
            connection = self._connect(place, address)
            try:
                answer = question(connection)
            finally:
                connection.close()
        except UNREACHABLE as error:
            raise BrokerUnreachableError(f"{address.target}: {error}") from error
        with self._lock:
            self._resting.pop(place, None)
        return answer

    def note_password(self, place: str, address: Address) -> None:
        """Note that we have set this password."""
        with self._lock:
            self._set[place, address.user] = (_mark(address.password), self._clock())

    def _see_digests(self, place: str, digests: dict[str, str], began: float) -> None:
        """Take the digests of passwords that we set shortly before they were listed for those of ours."""
        with self._lock:
            for (of, user), (mark, at) in list(self._set.items()):
                if of == place and at < began:
                    if user in digests and began - at <= OURS_SECONDS:
                        self._proven[of, user] = (mark, _mark(digests[user]))
                    del self._set[of, user]

    def has_password(self, place: str, address: Address, digest: str, algorithm: str = "") -> bool:
        """Return whether the broker, which has this digest of a user's password, accepts the credentials."""
        is_known = fits(address.password, digest, algorithm)
        if is_known is not None:
            return is_known
        account, mark, seen = (place, address.user), _mark(address.password), _mark(digest)
        with self._lock:
            known = self._proven.get(account)
        is_right = known == (mark, seen) or self._accepts(place, address)
        with self._lock:
            if is_right and digest:
                self._proven[account] = (mark, seen)
            elif not is_right:
                self._proven.pop(account, None)
        return is_right

    def _accepts(self, place: str, address: Address) -> bool:
        """Try the credentials on a connection of their own."""
        try:
            self.ask(place, address, lambda _: None)
        except NotAuthenticatedError:
            return False
        except PreconditionFailedError:
            return True  # the broker counts connections only after it has checked the password
        return True


def _mark(text: str) -> str:
    """Return what tells passwords apart without keeping them, and digests, which a broker may make long."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
