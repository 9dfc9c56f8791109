"""Connections to brokers, one per Cluster and vhost, kept until they fail. What a broker refuses comes through as the
client's own errors; one that cannot be reached becomes BrokerUnreachableError."""

from collections.abc import Callable
from threading import Lock

from penstock import Connection, connect
from penstock.client.errors import (
    BrokerError,
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    NotAuthenticatedError,
)
from penstock.client.uri import Address, format_uri

CALL_SECONDS = 10.0
UNREACHABLE = (ConnectionLostError, DeadlineError, ClosedError, BrokerError)


class BrokerUnreachableError(Exception):
    """The broker does not answer; the text says who and why."""


class Brokers:
    """Thread-safe. A connection belongs to an address with its credentials, so that a changed password makes a new
    one."""

    def __init__(self, connect_to: Callable[[Address], Connection] | None = None) -> None:
        self._connect = connect_to or _connect
        self._lock = Lock()
        self._open: dict[Address, Connection] = {}

    def get(self, address: Address) -> Connection:
        """Raises BrokerUnreachableError, or NotAuthenticatedError when the broker knows other credentials."""
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
        """After a failure, or when a Cluster goes: the next call connects anew."""
        with self._lock:
            gone = [self._open.pop(address) for address in list(self._open) if address.host == host]
        for connection in gone:
            connection.close()

    def accepts(self, address: Address) -> bool:
        """Whether these credentials open the broker. Such a connection is not kept."""
        try:
            self._connect(address).close()
        except NotAuthenticatedError:
            return False
        except UNREACHABLE as error:
            raise BrokerUnreachableError(f"{address.target}: {error}") from error
        return True


def _connect(address: Address) -> Connection:
    return connect(format_uri(address), timeout=CALL_SECONDS)
