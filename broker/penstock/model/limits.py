"""Numeric limits of users and virtual hosts, and their format in other brokers.

None is no limit, and so is a negative number that is read. This module does not know what a limit applies to.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.model.errors import InvalidArgumentError, Thing

COUNT_MAX: Final = 2**31 - 1
BYTES_MAX: Final = 2**53

KEYS: Final[dict[str, str]] = {
    "queues_max": "max-queues",
    "connections_max": "max-connections",
    "streams_max": "max-channels",
    "publish_rate": "publish-rate",
    "publish_bytes_rate": "publish-bytes-rate",
    "in_flight_bytes_max": "max-in-flight-bytes",
    "message_bytes_max": "max-message-bytes",
}
"""Field -> key in files and definitions: RabbitMQ's where it has the limit. A stream is what AMQP calls a channel."""

FLOW: Final = ("publish_rate", "publish_bytes_rate", "in_flight_bytes_max", "message_bytes_max")
"""Limits enforced where messages move; the others are enforced where things are counted."""

_LARGE: Final = frozenset({"publish_bytes_rate", "in_flight_bytes_max", "message_bytes_max"})
_POSITIVE: Final = frozenset({"publish_rate", "publish_bytes_rate", "in_flight_bytes_max"})
"""Limits that must not be 0: everything would stop without an error."""


def read_limits(thing: Thing, written: Mapping[str, object], fields: Iterable[str]) -> dict[str, int | None]:
    """Return limits by field. Raises InvalidArgumentError for unsupported ones."""
    names = {KEYS[field]: field for field in fields}
    unknown = sorted(set(written) - set(names))
    if unknown:
        raise InvalidArgumentError(
            thing, f"have '{unknown[0][:64]}', which is unknown", f"set any of {', '.join(names)}"
        )
    return {field: _read(thing, key, field, written.get(key)) for key, field in names.items()}


def write_limits(limits: Mapping[str, int | None]) -> dict[str, int]:
    """Return the limits that are set."""
    return {KEYS[field]: value for field, value in limits.items() if value is not None}


def check_limits(thing: Thing, limits: Mapping[str, int | None]) -> None:
    """Check limits; raise InvalidArgumentError for an unsupported number."""
    for field, value in limits.items():
        _read(thing, KEYS[field], field, value)


def _read(thing: Thing, key: str, field: str, value: object) -> int | None:
    if value is None:
        return None
    least, most = (1 if field in _POSITIVE else 0), (BYTES_MAX if field in _LARGE else COUNT_MAX)
    if isinstance(value, bool) or not isinstance(value, int) or value > most:
        raise InvalidArgumentError(
            thing, f"have a '{key}' that is not a number up to {most}", "send a whole number", field=key
        )
    if value < 0:
        return None
    if value < least:
        raise InvalidArgumentError(thing, f"have a '{key}' of {value}", f"send {least} or more", field=key)
    return value
