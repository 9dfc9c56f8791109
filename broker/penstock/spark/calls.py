"""Rules for every call of Flight: deadlines, retries at the next address, and an error of one sentence.

A host that vanishes closes no socket, so HTTP/2 pings tell whether it is there. Reads and questions also have a
deadline, for a broker that answers pings and nothing else. A put has none: its task sets the pace, and a full disk
makes it wait.
"""

import re
from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

import pyarrow as pa
from pyarrow import flight

from penstock.client.errors import UNAVAILABLE as UNAVAILABLE_CODE
from penstock.client.following import Hint, Wait, hint_in
from penstock.spark.brokers import Addresses
from penstock.spark.errors import NotFoundError, RefusedError, SparkConnectorError, UnavailableError

__all__ = [
    "FAILURES",
    "INFO_SECONDS_MAX",
    "PAUSE_SECONDS",
    "READ_SECONDS_MAX",
    "RetryWindow",
    "called",
    "connector_error",
]

T = TypeVar("T")

INFO_SECONDS_MAX = 30.0
# A read that takes longer goes on with another call.
READ_SECONDS_MAX = 120.0
PAUSE_SECONDS = 0.25

UNAVAILABLE = (flight.FlightUnavailableError, flight.FlightTimedOutError)
# All that a call raises: a refusal is a KeyError, an ArrowInvalid or an OSError, depending on the gRPC code.
FAILURES = (pa.ArrowException, OSError, KeyError)
BEFORE = re.compile(r"^\w+ returned [a-z -]+ error, with message: ")
BEHIND = re.compile(
    r"\. (?:gRPC client debug context|Client context|Detail|Additionally, could not finish): ?.*", re.DOTALL
)


def connector_error(error: Exception, address: str) -> SparkConnectorError:
    """Return the connector's error for one of Flight, without the context that gRPC and Flight add."""
    message = BEHIND.sub("", BEFORE.sub("", str(error.args[0] if error.args else error))).strip()
    if isinstance(error, KeyError):
        return NotFoundError(message)
    if isinstance(error, UNAVAILABLE):
        return UnavailableError(f"broker '{address}' cannot be reached: {message}; check 'uri' and whether it runs")
    return RefusedError(message)


def hint_of(error: Exception) -> Hint | None:
    """Return which broker leads instead, if an error says that."""
    details = getattr(error, "extra_info", None)
    return hint_in(UNAVAILABLE_CODE, "", details) if isinstance(details, bytes) else None


def called(call: Callable[[], T], address: str) -> T:
    """Call once; raise the connector's error."""
    try:
        return call()
    except FAILURES as error:
        raise connector_error(error, address) from None


class RetryWindow:
    """The time for which a call is repeated while the broker cannot be reached, from the first failure in a row.

    Each attempt is made at the next address, and every address is tried once, however short the time is. Where a broker
    names the leader, the next attempt is made there, at once.
    """

    def __init__(self, seconds: float, addresses: Addresses) -> None:
        self._seconds = seconds
        self._addresses = addresses
        self._failing_since: float | None = None
        self._failures = 0

    def renew(self) -> None:
        """Count from the next failure: the broker answered."""
        self._failing_since = None
        self._addresses.answered()

    def wait(self, error: Exception) -> None:
        """Wait before the next attempt; raise the connector's error when there is none."""
        if not isinstance(error, UNAVAILABLE):
            raise connector_error(error, str(self._addresses)) from None
        now = monotonic()
        if self._failing_since is None:
            self._failing_since = now
            self._failures = 0
        hint = hint_of(error)
        wait = self._addresses.leave(hint)
        if hint is None:
            self._failures += 1
            if self._failures < self._addresses.count:
                return
        elif wait is Wait.NONE:
            return
        if now - self._failing_since >= self._seconds:
            raise connector_error(error, str(self._addresses)) from None
        if hint is not None or self._failures % self._addresses.count == 0:
            sleep(PAUSE_SECONDS)

    def run(self, call: Callable[[], T], *, may_repeat: bool = True) -> T:
        """Call until it succeeds. One that may not be repeated is called again only where a broker did not take it."""
        while True:
            try:
                answer = call()
            except FAILURES as error:
                if not may_repeat and hint_of(error) is None:
                    raise connector_error(error, str(self._addresses)) from None
                self.wait(error)
            else:
                self._addresses.answered()
                return answer
