"""Connections to brokers, one per Cluster and vhost, kept until they fail.

A broker's refusals are the client's own errors; an unreachable broker is a BrokerUnreachableError.
"""

from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from penstock import Connection, connect
from penstock.client.errors import (
    BrokerError,
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    NotAuthenticatedError,
)
from penstock.client.uri import Address, format_uri

T = TypeVar("T")
CALL_SECONDS = 10.0
UNREACHABLE = (ConnectionLostError, DeadlineError, ClosedError, BrokerError)


class BrokerUnreachableError(Exception):
    """The broker does not answer; the text says which and why."""


class Brokers:
    """Thread-safe. A connection is keyed by address and credentials, so a changed password makes a new one."""

    def __init__(self, connect_to: Callable[[Address], Connection] | None = None) -> None:
        self._connect = connect_to or _connect
        self._lock = Lock()
        self._open: dict[Address, Connection] = {}

    def get(self, address: Address) -> Connection:
        """Return a connection.

        Raises BrokerUnreachableError, or NotAuthenticatedError when the broker has other credentials.
        """
        with self._lock:
            known = self._open.get(address)
        if known is not None:
            return known
        try:
            made = self._connect(address)
        except UNREACHABLE as error:
            raise BrokerUnreachableError(f"{address.target}: {error}") from error
        with self._lock:
            kept = self._open.setdefault(address, made)
        if kept is not made:
            made.close()
        return kept

    def forget(self, host: str) -> None:
        """Drop the connections after a failure, or when a Cluster goes: the next call reconnects."""
        with self._lock:
            gone = [self._open.pop(address) for address in list(self._open) if address.host == host]
        for connection in gone:
            connection.close()

    def ask(self, address: Address, question: Callable[[Connection], T]) -> T:
        """Ask over a new connection, as a client that arrives now does, and close it.

        Raises BrokerUnreachableError, or the broker's refusals.
        """
        try:
            connection = self._connect(address)
            try:
                return question(connection)
            finally:
                connection.close()
        except UNREACHABLE as error:
            raise BrokerUnreachableError(f"{address.target}: {error}") from error

    def accepts(self, address: Address) -> bool:
        """Return whether the broker accepts these credentials. Such a connection is not kept."""
        try:
            self.ask(address, lambda _: None)
        except NotAuthenticatedError:
            return False
        return True


def _connect(address: Address) -> Connection:
    return connect(format_uri(address), timeout=CALL_SECONDS)
