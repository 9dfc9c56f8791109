"""The properties of a message <-> their protobuf bytes.

A property that is None is absent. A message without properties is persistent, so `Properties()` costs no byte on the
wire.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.client.values import Value, read_table, write_table
from penstock.v1 import message_pb2

__all__ = ["PERSISTENT", "TRANSIENT", "Properties", "encode_properties", "read_properties"]

TRANSIENT = 1
PERSISTENT = 2

_TEXTS = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "type",
    "user_id",
    "app_id",
)
PRIORITY_MAX = 255


@dataclass(slots=True)
class Properties:
    """The properties of AMQP 0-9-1. `expiration` is in milliseconds, as text; `timestamp` in seconds since 1970.

    `delay_ms` is for publishing: the message is delivered so many milliseconds later. Deliveries do not have it.
    `priority` is from 0 to 255, and counts in queues with the argument `x-max-priority`; None counts as 0.
    """

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Mapping[str, Value] = field(default_factory=dict)
    delivery_mode: int = PERSISTENT
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    delay_ms: int | None = None


def encode_properties(properties: Properties | None, headers: Mapping[str, Value] | None = None) -> bytes | None:
    """Return a serialised penstock.v1.Properties for a message to publish, or None if there is nothing to say.

    `headers` add to the properties' own. Raise ValueError for values that properties cannot have.
    Headers are sorted by name: a map of protobuf has no order, and readers of rows see the stored order.
    """
    if properties is None:
        if not headers:
            return None
        properties = Properties(headers=headers)
    elif headers:
        properties = replace(properties, headers={**properties.headers, **headers})
    return _write(properties).SerializeToString(deterministic=True) or None


def read_properties(payload: bytes | None) -> Properties:
    """Return the properties of a delivery."""
    if not payload:
        return Properties()
    message = message_pb2.Properties.FromString(payload)
    properties = Properties(
        headers=read_table(message.headers),
        delivery_mode=message.delivery_mode or PERSISTENT,
        priority=message.priority if message.HasField("priority") else None,
        timestamp=message.timestamp if message.HasField("timestamp") else None,
    )
    for name in _TEXTS:
        setattr(properties, name, getattr(message, name) or None)
    return properties


def _write(properties: Properties) -> message_pb2.Properties:
    if properties.delivery_mode not in (TRANSIENT, PERSISTENT):
        raise ValueError(f"delivery_mode is {properties.delivery_mode}; it must be 1 (transient) or 2 (persistent)")
    message = message_pb2.Properties()
    for name in _TEXTS:
        text = getattr(properties, name)
        if text is not None:
            setattr(message, name, text)
    if properties.delivery_mode != PERSISTENT:
        message.delivery_mode = properties.delivery_mode
    if properties.priority is not None:
        if not 0 <= properties.priority <= PRIORITY_MAX:
            raise ValueError(f"priority is {properties.priority}; it must be from 0 to {PRIORITY_MAX}")
        message.priority = properties.priority
    if properties.timestamp is not None:
        message.timestamp = properties.timestamp
    if properties.delay_ms is not None:
        message.delay_ms = properties.delay_ms
    write_table(properties.headers, message.headers)
    return message
