"""What a vhost is made of: exchanges, queues, bindings, and the routes that follow from bindings.

Records are values: a change makes a new one. They hold what was declared and nothing of what happens to messages.
Compare arguments with `model.arguments`, never with `==`, which takes 1 for True.
"""

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final

from penstock.model.arguments import Arguments, Frozen, freeze_arguments
from penstock.model.names import ConnectionId, ExchangeName, QueueId, QueueName, RoutingKey


class ExchangeKind(StrEnum):
    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"


class DestinationKind(StrEnum):
    QUEUE = "queue"
    EXCHANGE = "exchange"


class Access(StrEnum):
    """What a permission allows."""

    CONFIGURE = "configure"
    WRITE = "write"
    READ = "read"


class Level(StrEnum):
    """What a confirm means."""

    OS = "os"
    DISK = "disk"


class HeadersMatch(Enum):
    """How a headers binding's arguments are held against a message's headers, by the value of `x-match`."""

    ALL = "all"
    ANY = "any"
    ALL_WITH_X = "all-with-x"
    ANY_WITH_X = "any-with-x"


NO_KEY: Final = RoutingKey("")
X_MATCH: Final = "x-match"
X_LEVEL: Final = "x-level"
X_QUEUE_TYPE: Final = "x-queue-type"
ALTERNATE_KEYS: Final = ("alternate-exchange", "x-alternate-exchange")


@dataclass(frozen=True, slots=True)
class Exchange:
    name: ExchangeName
    kind: ExchangeKind
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Arguments = field(default_factory=dict)

    @property
    def alternate(self) -> ExchangeName | None:
        """Where messages go that match none of its bindings."""
        for key in ALTERNATE_KEYS:
            value = self.arguments.get(key)
            if isinstance(value, str):
                return ExchangeName(value)
        return None

    @property
    def is_persistent(self) -> bool:
        """Whether it is there again after a start."""
        return self.durable


@dataclass(frozen=True, slots=True)
class Queue:
    id: QueueId
    name: QueueName
    durable: bool = True
    auto_delete: bool = False
    arguments: Arguments = field(default_factory=dict)
    owner: ConnectionId | None = None
    """The only connection that may use it, when it is exclusive."""

    @property
    def exclusive(self) -> bool:
        return self.owner is not None

    @property
    def is_persistent(self) -> bool:
        """Whether it is there again after a start. An exclusive one goes with its connection, whatever it says."""
        return self.durable and self.owner is None

    @property
    def level(self) -> Level | None:
        value = self.arguments.get(X_LEVEL)
        return Level(value) if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class Binding:
    source: ExchangeName
    destination_kind: DestinationKind
    destination: QueueName | ExchangeName
    routing_key: RoutingKey = NO_KEY
    arguments: Arguments = field(default_factory=dict)

    @property
    def identity(self) -> Frozen:
        """Two bindings with equal identities are one."""
        return (
            self.source,
            self.destination_kind,
            self.destination,
            self.routing_key,
            freeze_arguments(self.arguments),
        )


@dataclass(frozen=True, slots=True)
class Route:
    """What of a binding decides where a message goes: a fanout exchange looks at nothing, a headers exchange at the
    arguments, the others at the key. Several bindings can be one route."""

    source: ExchangeName
    key: RoutingKey
    arguments: Arguments | None
    destination_kind: DestinationKind
    destination: QueueName | ExchangeName

    @property
    def identity(self) -> Frozen:
        matched = None if self.arguments is None else freeze_arguments(self.arguments)
        return (self.source, self.key, matched, self.destination_kind, self.destination)


def route_of(binding: Binding, kind: ExchangeKind) -> Route:
    """`kind` is the source's."""
    key = binding.routing_key if kind in (ExchangeKind.DIRECT, ExchangeKind.TOPIC) else NO_KEY
    arguments = binding.arguments if kind is ExchangeKind.HEADERS else None
    return Route(binding.source, key, arguments, binding.destination_kind, binding.destination)
