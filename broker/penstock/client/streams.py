"""The port between the pure publisher and consumer and the calls that carry their bytes.

It has the rule of which errors end them.

A stream sends what its requests yield, one by one, from a thread of its own, and is iterated over for the responses; it
ends with a StatusError or quietly.
"""

from collections.abc import Iterator
from typing import Protocol

from penstock.client.backoff import Backoff
from penstock.client.errors import (
    ABORTED,
    CANCELLED,
    DATA_LOSS,
    DEADLINE_EXCEEDED,
    FAILED_PRECONDITION,
    INTERNAL,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    UNKNOWN,
    from_status,
)
from penstock.client.following import Wait
from penstock.client.transport import StatusError

__all__ = ["SHORT_SECONDS_MAX", "Stream", "Streams", "is_passing", "may_come_back", "seconds_until_retry"]

# A broker that answers says soon who leads: an election takes about a second.
SHORT_SECONDS_MAX = 0.25

# The reason that the details of a reached limit give.
LIMIT_REACHED = "LIMIT_REACHED"

# The world's doing: it may have passed when the stream is opened again. Everything else is an answer.
_PASSING = frozenset(
    (ABORTED, CANCELLED, DATA_LOSS, DEADLINE_EXCEEDED, INTERNAL, RESOURCE_EXHAUSTED, UNAVAILABLE, UNKNOWN)
)


class Stream(Protocol):
    def __iter__(self) -> Iterator[bytes]: ...
    def cancel(self) -> None: ...
    def give_up(self, status: StatusError) -> StatusError:
        """End the call because of what the broker answered in it, as if it had ended the call with this status."""


class Streams(Protocol):
    def open(self, method: str, requests: Iterator[bytes]) -> Stream:
        """Start a bidirectional call on the connection."""


def may_come_back(error: StatusError, was_open: bool) -> bool:
    """Return whether to open a consumer or a reader again though the broker refused it.

    One that was open before may be refused because of its own last connection, which the broker has not found broken
    yet: it still holds the queue exclusively or counts for a limit. A new one should get the refusal, also that of a
    limit.
    """
    code, message, details = error.args
    if code == FAILED_PRECONDITION:
        return was_open
    is_limit = code == RESOURCE_EXHAUSTED and from_status(code, message, details).detail.reason == LIMIT_REACHED
    return is_passing(code) and (was_open or not is_limit)


def seconds_until_retry(error: StatusError, backoff: Backoff) -> float:
    """Return how long to wait before a stream that ended with `error` is opened again."""
    if error.wait is Wait.NONE:
        return 0.0
    delay = backoff.delay()
    return min(delay, SHORT_SECONDS_MAX) if error.wait is Wait.SHORT else delay


def is_passing(code: int) -> bool:
    """Whether a stream that ended with `code` should be opened again."""
    return code in _PASSING
