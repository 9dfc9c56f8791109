"""Names and numbers that identify things, as types of their own, and the rule for all names.

A name is text of at most 255 bytes of UTF-8, because AMQP and the log store it behind one byte of length. This module
does not know which names exist or who may use them.
"""

from typing import Final, NewType

from penstock.model.errors import InvalidArgumentError, Thing, TooLargeError

VhostName = NewType("VhostName", str)
QueueName = NewType("QueueName", str)
ExchangeName = NewType("ExchangeName", str)
RoutingKey = NewType("RoutingKey", str)
UserName = NewType("UserName", str)
QueueId = NewType("QueueId", int)
ConnectionId = NewType("ConnectionId", int)

NAME_BYTES_MAX: Final = 255
QUEUE_ID_MAX: Final = 2**38 - 1
"""The log's records name a queue with 40 bits; the numbers above belong to histories of exchanges."""

NUMBERS_USED_UP: Final = (
    "cannot be declared: all queue numbers of its vhost are used",
    "a number is never used again, so declare it in a new vhost",
)
"""A refusal's rule and way out."""

DEFAULT_VHOST: Final = VhostName("/")
DEFAULT_EXCHANGE: Final = ExchangeName("")
RESERVED_PREFIX: Final = "amq."
SERVER_NAMED_PREFIX: Final = "amq.gen-"
SERVER_NAMED_RANDOM_LENGTH: Final = 22
"""22 characters of 6 bits are 132 bits: names of two servers never collide."""


def check_name(kind: str, text: str) -> str:
    """Return the text when it is a valid name of this kind of thing; refuse it otherwise."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        thing = Thing(kind, text.encode(errors="backslashreplace").decode())
        raise InvalidArgumentError(
            thing, "has a name that is not valid Unicode", "send the name as UTF-8", field="name"
        ) from error
    if size > NAME_BYTES_MAX:
        thing = Thing(kind, f"{text[:32]}...")
        raise TooLargeError(thing, f"has a name of {size} bytes", size=size, size_max=NAME_BYTES_MAX)
    return text


def vhost_name(text: str) -> VhostName:
    return VhostName(_not_empty("vhost", check_name("vhost", text)))


def user_name(text: str) -> UserName:
    return UserName(_not_empty("user", check_name("user", text)))


def queue_name(text: str) -> QueueName:
    """Return a queue name, which may be empty: such a declare asks the broker for a name."""
    return QueueName(check_name("queue", text))


def existing_queue_name(text: str) -> QueueName:
    """Return the name of a queue that should be there: it is not empty."""
    if not text:
        raise InvalidArgumentError(Thing("queue", ""), "has no name", "name the queue", field="queue")
    return queue_name(text)


def exchange_name(text: str) -> ExchangeName:
    """Return an exchange name, which may be empty: that is the default exchange."""
    return ExchangeName(check_name("exchange", text))


def routing_key(text: str) -> RoutingKey:
    return RoutingKey(check_name("routing key", text))


def is_reserved(name: str) -> bool:
    return name.startswith(RESERVED_PREFIX)


def _not_empty(kind: str, text: str) -> str:
    if not text:
        raise InvalidArgumentError(Thing(kind, text), "has an empty name", "choose a name", field="name")
    return text
