"""The port between the pure publisher and consumer and the calls that carry their bytes, and the rule of what ends
them.

A stream sends what its requests give, one by one, from a thread of its own, and is iterated over for the responses; it
ends with a StatusError or quietly.
"""

from collections.abc import Iterator
from typing import Protocol

from penstock.client.errors import (
    ABORTED,
    CANCELLED,
    DATA_LOSS,
    DEADLINE_EXCEEDED,
    INTERNAL,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    UNKNOWN,
)

__all__ = ["Stream", "Streams", "is_passing"]

# The world's doing: it may have passed when the stream is opened again. Everything else is an answer.
_PASSING = frozenset(
    (ABORTED, CANCELLED, DATA_LOSS, DEADLINE_EXCEEDED, INTERNAL, RESOURCE_EXHAUSTED, UNAVAILABLE, UNKNOWN)
)


class Stream(Protocol):
    def __iter__(self) -> Iterator[bytes]: ...
    def cancel(self) -> None: ...


class Streams(Protocol):
    def open(self, method: str, requests: Iterator[bytes]) -> Stream:
        """Starts a bidirectional call on the connection."""


def is_passing(code: int) -> bool:
    """Whether a stream that ended with `code` should be opened again."""
    return code in _PASSING
