"""The budget of memory for requests and responses: its default size, and its figures for metrics.

The native listener keeps the budget; this only chooses it and names its figures.
"""

from collections.abc import Mapping
from typing import Protocol

from penstock.kit.memory import limit_bytes

MIB = 1024 * 1024
# A record batch of Arrow Flight, and what surrounds a message.
_FLIGHT_BYTES_MAX, _ENVELOPE_BYTES_MAX = 64 * MIB, 2 * MIB
_REQUESTS_MIN = 4
_NAMES = (
    "buffer_limit_bytes",
    "buffer_request_bytes",
    "buffer_response_bytes",
    "buffer_unauthenticated_bytes",
    "buffer_waits_total",
    "connections_closed_for_buffers_total",
)


class Listener(Protocol):
    """The part of the native listener that is read here."""

    def memory(self) -> tuple[int, int, int, int, int, int]: ...


def buffer_bytes(message_bytes_max: int, available: int | None = None) -> int:
    """Return a quarter of the memory that the broker may use, but no less than four of the largest requests."""
    available = limit_bytes() if available is None else available
    largest = max(message_bytes_max + _ENVELOPE_BYTES_MAX, _FLIGHT_BYTES_MAX)
    return max(available // 4, _REQUESTS_MIN * largest)


def buffer_figures(listener: Listener) -> Mapping[str, float]:
    """Return the figures of the budget by their names in `metrics`."""
    return dict(zip(_NAMES, map(float, listener.memory()), strict=True))
