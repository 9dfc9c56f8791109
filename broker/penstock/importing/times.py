"""When imported messages expire and when delayed ones are due, from their properties as on the wire.

A time counts from the storage of a message in the other broker. Properties were read from a file that was checked, so
they are complete; headers may hold anything.
"""

from dataclasses import dataclass, replace
from typing import Final

from penstock.importing.lavinmq import FoundMessage
from penstock.model.arguments import Arguments, Value
from penstock.model.field_table import FieldTableError, decode_table, encode_table

TIME_MS_MAX: Final = 2**47 - 1
"""A later time is never."""
DIGITS_MAX: Final = 19
X_DELAY: Final = "x-delay"
CC: Final = "CC"
_TEXTS_BEFORE: Final = (0x8000, 0x4000)
_HEADERS: Final = 0x2000
_DELIVERY_MODE, _PRIORITY = 0x1000, 0x0800
_CORRELATION_ID, _REPLY_TO, _EXPIRATION = 0x0400, 0x0200, 0x0100


@dataclass(frozen=True, slots=True)
class Delayed:
    """A delayed message as its queues get it: with its priority, and a negative delay, as after any delay."""

    message: FoundMessage
    due_ms: int | None
    headers: Arguments
    more_keys: tuple[str, ...]


def expires_ms(message: FoundMessage, since_ms: int) -> int | None:
    """Return when a message expires in ms since 1970, None for never or for an expiration that is no number."""
    text = _Fields(message.properties).expiration
    if not text.isdigit() or len(text) > DIGITS_MAX:
        return None
    time = since_ms + int(text)
    return time if time <= TIME_MS_MAX else None


def delayed(message: FoundMessage) -> Delayed:
    """Return when a message of a delayed exchange is due. One without a readable delay is not delayed."""
    fields = _Fields(message.properties)
    start, end = fields.headers
    message = replace(message, priority=fields.priority)
    try:
        headers = decode_table(message.properties[start:end])
    except FieldTableError:
        return Delayed(message, None, {}, ())
    delay = headers.get(X_DELAY)
    more = headers.get(CC)
    keys = tuple(key for key in more if isinstance(key, str)) if isinstance(more, list) else ()
    if not isinstance(delay, int) or isinstance(delay, bool) or delay <= 0:
        return Delayed(message, None, headers, keys)
    negative: dict[str, Value] = {**headers, X_DELAY: -delay}
    content = encode_table(negative)
    properties = b"".join(
        (message.properties[: start - 4], len(content).to_bytes(4, "big"), content, message.properties[end:])
    )
    due = min(message.stored_at_ms + delay, TIME_MS_MAX)
    return Delayed(replace(message, properties=properties), due, headers, keys)


class _Fields:
    """The places of the fields of properties up to the expiration."""

    def __init__(self, properties: bytes) -> None:
        flags = int.from_bytes(properties[:2], "big")
        at = 2
        for flag in _TEXTS_BEFORE:
            at += 1 + properties[at] if flags & flag else 0
        self.headers = (at, at)
        if flags & _HEADERS:
            self.headers = (at + 4, at + 4 + int.from_bytes(properties[at : at + 4], "big"))
            at = self.headers[1]
        at += 1 if flags & _DELIVERY_MODE else 0
        self.priority = properties[at] if flags & _PRIORITY else 0
        at += 1 if flags & _PRIORITY else 0
        for flag in (_CORRELATION_ID, _REPLY_TO):
            at += 1 + properties[at] if flags & flag else 0
        self.expiration = properties[at + 1 : at + 1 + properties[at]] if flags & _EXPIRATION else b""
