"""Rules for every call of Flight: the channel's options, deadlines, retries, and an error of one sentence.

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

from penstock.spark.errors import NotFoundError, RefusedError, SparkConnectorError, UnavailableError

__all__ = [
    "CHANNEL_OPTIONS",
    "FAILURES",
    "INFO_SECONDS_MAX",
    "PAUSE_SECONDS",
    "READ_SECONDS_MAX",
    "RetryWindow",
    "connector_error",
]

T = TypeVar("T")

PING_EVERY_MS = 10_000
PING_ANSWER_MS_MAX = 20_000
CHANNEL_OPTIONS = [
    ("grpc.keepalive_time_ms", PING_EVERY_MS),
    ("grpc.keepalive_timeout_ms", PING_ANSWER_MS_MAX),
    # gRPC waits a minute for the answer to a ping unless this says otherwise, whatever the option above says.
    ("grpc.http2.ping_timeout_ms", PING_ANSWER_MS_MAX),
    ("grpc.http2.max_pings_without_data", 0),
    # gRPC's own pause between attempts to connect grows to two minutes, longer than most brokers are away.
    ("grpc.initial_reconnect_backoff_ms", 250),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # The time for one attempt to connect.
    ("grpc.min_reconnect_backoff_ms", 5_000),
]
INFO_SECONDS_MAX = 30.0
# A read that takes longer goes on with another call.
READ_SECONDS_MAX = 120.0
PAUSE_SECONDS = 0.25

UNAVAILABLE = (flight.FlightUnavailableError, flight.FlightTimedOutError)
# All that a call raises: a refusal is a KeyError, an ArrowInvalid or an OSError, depending on the gRPC code.
FAILURES = (pa.ArrowException, OSError, KeyError)
BEFORE = re.compile(r"^\w+ returned [a-z ]+ error, with message: ")
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


class RetryWindow:
    """The time for which a call is repeated while the broker cannot be reached, from the first failure in a row."""

    def __init__(self, seconds: float, address: str) -> None:
        self._seconds = seconds
        self._address = address
        self._failing_since: float | None = None

    def renew(self) -> None:
        """Count from the next failure: the broker answered."""
        self._failing_since = None

    def wait(self, error: Exception) -> None:
        """Wait before the next attempt; raise the connector's error when there is none."""
        now = monotonic()
        if self._failing_since is None:
            self._failing_since = now
        is_over = now - self._failing_since >= self._seconds
        if is_over or not isinstance(error, UNAVAILABLE):
            raise connector_error(error, self._address) from None
        sleep(PAUSE_SECONDS)

    def run(self, call: Callable[[], T]) -> T:
        """Call until it succeeds. Use it only for calls that may be repeated."""
        while True:
            try:
                return call()
            except FAILURES as error:
                self.wait(error)
