"""The default size of the budget of memory for requests and responses, which the native listener keeps."""

from penstock.kit.memory import limit_bytes

MIB = 1024 * 1024
# A record batch of Arrow Flight, and what surrounds a message.
_FLIGHT_BYTES_MAX, _ENVELOPE_BYTES_MAX = 64 * MIB, 2 * MIB
_REQUESTS_MIN = 4


def buffer_bytes(message_bytes_max: int, available: int | None = None) -> int:
    """Return a quarter of the memory that the broker may use, but no less than four of the largest requests."""
    available = limit_bytes() if available is None else available
    largest = max(message_bytes_max + _ENVELOPE_BYTES_MAX, _FLIGHT_BYTES_MAX)
    return max(available // 4, _REQUESTS_MIN * largest)
