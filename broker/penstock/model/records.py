"""Records of a vhost: exchanges, queues, bindings, and the routes that follow from bindings.

Records are values: a change makes a new one. They have the declaration and no state of messages. Compare arguments with
`model.arguments`, never with `==`, which takes 1 for True.
"""

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, NamedTuple

from penstock.model.ages import age_ms
from penstock.model.arguments import Arguments, Frozen, freeze_arguments
from penstock.model.names import ConnectionId, ExchangeName, QueueId, QueueName, RoutingKey


class ExchangeKind(StrEnum):
    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"
    SUPER_STREAM = "x-super-stream"
    """Routes each message to one of its queues, chosen by the hash of the message's key."""
    CONSISTENT_HASH = "x-consistent-hash"
    """Routes each message to one of its bindings, chosen by a hash; their keys are weights."""
    MODULUS_HASH = "x-modulus-hash"
    """Routes each message to one of its bindings, chosen by the hash of the routing key."""
    RANDOM = "x-random"
    """Routes each message to one of its bindings, chosen at random."""
    LOCAL_RANDOM = "x-local-random"
    """The same, with queues of this broker alone."""
    DELAYED = "x-delayed-message"
    """Routes as the type in its argument says, and delays messages that ask for it."""
    RECENT_HISTORY = "x-recent-history"
    """Routes to all bindings, and keeps its last messages for those that are made later."""


class QueueKind(StrEnum):
    """Type of a queue: consumers empty a classic or a quorum queue; a stream is read and kept."""

    CLASSIC = "classic"
    QUORUM = "quorum"
    STREAM = "stream"


class DestinationKind(StrEnum):
    QUEUE = "queue"
    EXCHANGE = "exchange"


class Access(StrEnum):
    """Kinds of permission."""

    CONFIGURE = "configure"
    WRITE = "write"
    READ = "read"


class Durability(StrEnum):
    """The promise of a confirm."""

    OS = "os"
    DISK = "disk"


class Overflow(StrEnum):
    """The action of a full queue."""

    DROP_HEAD = "drop-head"
    REJECT_PUBLISH = "reject-publish"
    REJECT_PUBLISH_DLX = "reject-publish-dlx"


class HashAlgorithm(Enum):
    """How an x-consistent-hash exchange chooses by a hash, the value of `x-algorithm`."""

    RING = "ring"
    JUMP = "jump"


class HashProperty(Enum):
    """The properties that an x-consistent-hash exchange can hash, the values of `hash-property`."""

    MESSAGE_ID = "message_id"
    CORRELATION_ID = "correlation_id"
    TIMESTAMP = "timestamp"


class HeadersMatch(Enum):
    """How a headers binding's arguments match a message's headers, the value of `x-match`."""

    ALL = "all"
    ANY = "any"
    ALL_WITH_X = "all-with-x"
    ANY_WITH_X = "any-with-x"


NO_KEY: Final = RoutingKey("")
X_MATCH: Final = "x-match"
X_DURABILITY: Final = "x-durability"
X_QUEUE_TYPE: Final = "x-queue-type"
X_MAX_AGE: Final = "x-max-age"
X_MAX_LENGTH_BYTES: Final = "x-max-length-bytes"
X_MESSAGE_TTL: Final = "x-message-ttl"
X_MAX_LENGTH: Final = "x-max-length"
X_OVERFLOW: Final = "x-overflow"
X_EXPIRES: Final = "x-expires"
X_DEAD_LETTER_EXCHANGE: Final = "x-dead-letter-exchange"
X_DEAD_LETTER_ROUTING_KEY: Final = "x-dead-letter-routing-key"
X_DEAD_LETTER_STRATEGY: Final = "x-dead-letter-strategy"
X_DELIVERY_LIMIT: Final = "x-delivery-limit"
QUORUM_DELIVERY_LIMIT: Final = 20
"""The limit of a quorum queue that has none of its own, as in RabbitMQ."""
X_DELAYED_RETRY_TYPE: Final = "x-delayed-retry-type"
X_DELAYED_RETRY_MIN: Final = "x-delayed-retry-min"
X_DELAYED_RETRY_MAX: Final = "x-delayed-retry-max"
X_RETRY_BACKOFF: Final = "x-retry-backoff"
X_MAX_PRIORITY: Final = "x-max-priority"
X_SINGLE_ACTIVE: Final = "x-single-active-consumer"
X_CONSUMER_TIMEOUT: Final = "x-consumer-timeout"
PRIORITY_SHIFT: Final = 56
"""A message's priority in its sequence: the bits from this one on, in a queue with priorities."""
TURN_SHIFT: Final = 55
"""This bit is set in the sequence of a message whose key takes turns: those above it are the lane of the key."""
TURN_NUMBERS: Final = 2**39
"""The log has these lanes under numbers from this one on."""
X_FAIR_KEY: Final = "x-fair-key"
X_DEDICATED: Final = "x-dedicated"
"""Whether a queue has its own log beside its vhost's."""
X_PARTITIONS: Final = "x-partitions"
"""Argument of an x-super-stream exchange that was declared as a stream: its number of partitions."""
STAGE_PREFIX: Final = "amq.stage."
"""Prefix of the queues of stages: streams that only the broker declares."""
X_ALGORITHM: Final = "x-algorithm"
HASH_HEADER_KEYS: Final = ("hash-header", "x-hash-on")
"""RabbitMQ's and LavinMQ's name of the argument with the header that is hashed."""
HASH_PROPERTY: Final = "hash-property"
X_DELAYED_TYPE: Final = "x-delayed-type"
"""Argument of an x-delayed-message exchange: the type by which it routes."""
X_DELAYED_EXCHANGE: Final = "x-delayed-exchange"
"""Argument by which an exchange of another type delays messages, too."""
X_MESSAGE_DEDUPLICATION: Final = "x-message-deduplication"
X_DEDUPLICATION_HEADER: Final = "x-deduplication-header"
"""Argument with the name of the header by which repetitions are recognized, which is the default one's name, too."""
X_CACHE_SIZE: Final = "x-cache-size"
CACHE_SIZE: Final = 128
"""How many ids a queue or an exchange remembers, as in LavinMQ."""
X_CACHE_TTL: Final = "x-cache-ttl"
X_RECENT_HISTORY_LENGTH: Final = "x-recent-history-length"
HISTORY_LENGTH: Final = 20
"""How many messages an x-recent-history exchange keeps, as in RabbitMQ."""
ALTERNATE_KEYS: Final = ("alternate-exchange", "x-alternate-exchange")


class Retention(NamedTuple):
    """How much a stream keeps; 0 is no limit."""

    age_ms_max: int
    bytes_max: int


class RetryType(StrEnum):
    """Which of the messages that come back to their queue wait before they are ready again."""

    DISABLED = "disabled"
    ALL = "all"
    FAILED = "failed"
    RETURNED = "returned"


class Retries(NamedTuple):
    """How long messages that come back wait.

    `steps_ms` are the times after the first delivery, the second and so on, of which the last one repeats; without them
    it is `min_ms` for each delivery, at most `max_ms` if there is one.
    """

    type: RetryType
    min_ms: int = 0
    max_ms: int | None = None
    steps_ms: tuple[int, ...] = ()


class Deduplication(NamedTuple):
    """How repetitions are recognized: by a header, among so many ids, each for so long; None is any time."""

    header: str
    size_max: int
    ttl_ms: int | None


def deduplication_in(arguments: Arguments) -> Deduplication | None:
    """Return how a queue or an exchange with these checked arguments recognizes repetitions; None is not at all."""
    if arguments.get(X_MESSAGE_DEDUPLICATION) is not True:
        return None
    header = arguments.get(X_DEDUPLICATION_HEADER, X_DEDUPLICATION_HEADER)
    size, ttl = arguments.get(X_CACHE_SIZE, CACHE_SIZE), arguments.get(X_CACHE_TTL)
    return Deduplication(
        str(header), size if isinstance(size, int) else CACHE_SIZE, ttl if isinstance(ttl, int) else None
    )


class DeadLetterStrategy(StrEnum):
    """The ways to treat a dead letter that no queue takes: it is dropped, or stays in its queue."""

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"


class DeadLetters(NamedTuple):
    """Where the dead letters of a queue go; without a routing key, with the keys of the message."""

    exchange: ExchangeName
    routing_key: RoutingKey | None
    strategy: DeadLetterStrategy


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
        """Return the exchange that gets messages which match none of its bindings."""
        for key in ALTERNATE_KEYS:
            value = self.arguments.get(key)
            if isinstance(value, str):
                return ExchangeName(value)
        return None

    @property
    def partition_count(self) -> int:
        """Return the declared partition count; 0 for an exchange that was not declared as a stream."""
        value = self.arguments.get(X_PARTITIONS)
        return value if isinstance(value, int) and self.kind is ExchangeKind.SUPER_STREAM else 0

    @property
    def routing_kind(self) -> ExchangeKind:
        """Return the type by which it routes."""
        value = self.arguments.get(X_DELAYED_TYPE)
        return ExchangeKind(value) if self.kind is ExchangeKind.DELAYED and isinstance(value, str) else self.kind

    @property
    def is_delayed(self) -> bool:
        """Return whether it delays messages that ask for it."""
        return self.kind is ExchangeKind.DELAYED or self.arguments.get(X_DELAYED_EXCHANGE) is True

    @property
    def deduplication(self) -> Deduplication | None:
        """Return how it recognizes repetitions; None is not at all."""
        return deduplication_in(self.arguments)

    @property
    def history_length(self) -> int | None:
        """Return how many of its last messages it keeps; None for an exchange of another type."""
        if self.routing_kind is not ExchangeKind.RECENT_HISTORY:
            return None
        value = self.arguments.get(X_RECENT_HISTORY_LENGTH)
        return value if isinstance(value, int) else HISTORY_LENGTH

    @property
    def algorithm(self) -> HashAlgorithm:
        """Return how an x-consistent-hash exchange chooses."""
        value = self.arguments.get(X_ALGORITHM)
        return HashAlgorithm(value) if isinstance(value, str) else HashAlgorithm.RING

    @property
    def hash_header(self) -> str | None:
        """Return the header that an x-consistent-hash exchange hashes instead of the routing key."""
        values = (self.arguments.get(key) for key in HASH_HEADER_KEYS)
        return next((value for value in values if isinstance(value, str)), None)

    @property
    def hash_property(self) -> HashProperty | None:
        """Return the property that an x-consistent-hash exchange hashes instead of the routing key."""
        value = self.arguments.get(HASH_PROPERTY)
        return HashProperty(value) if isinstance(value, str) else None

    @property
    def is_persistent(self) -> bool:
        """Return whether it survives a restart."""
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
    least_durability: Durability | None = None
    """Minimum durability by an operator policy, whatever the publisher chose. Not part of the declaration."""
    shard: int = 0
    """The shard with its messages, chosen when it was declared. Not part of the declaration."""

    @property
    def exclusive(self) -> bool:
        return self.owner is not None

    @property
    def is_persistent(self) -> bool:
        """Return whether it survives a restart. An exclusive one goes with its connection, whatever it says."""
        return self.durable and self.owner is None

    @property
    def durability(self) -> Durability | None:
        value = self.arguments.get(X_DURABILITY)
        return Durability(value) if isinstance(value, str) else None

    @property
    def kind(self) -> QueueKind:
        return kind_of_queue(self.arguments)

    @property
    def is_stream(self) -> bool:
        return self.kind is QueueKind.STREAM

    @property
    def is_dedicated(self) -> bool:
        return self.arguments.get(X_DEDICATED) is True

    @property
    def retention(self) -> Retention | None:
        """Return the retention; None for a queue that is no stream."""
        if not self.is_stream:
            return None
        age, size = self.arguments.get(X_MAX_AGE), self.arguments.get(X_MAX_LENGTH_BYTES)
        return Retention((age_ms(age) or 0) if isinstance(age, str) else 0, size if isinstance(size, int) else 0)

    @property
    def message_ttl_ms(self) -> int | None:
        """Return how old its messages may become; None is any age."""
        return self._limit(X_MESSAGE_TTL)

    @property
    def messages_max(self) -> int | None:
        """Return how many messages it may have; None is any number."""
        return self._limit(X_MAX_LENGTH)

    @property
    def bytes_max(self) -> int | None:
        """Return how many bytes the bodies of its messages may have; None is any number, as for a stream."""
        return self._limit(X_MAX_LENGTH_BYTES)

    @property
    def rejects_publish(self) -> bool:
        """Return whether it refuses messages when it is full, instead of dropping the oldest ones."""
        return self.arguments.get(X_OVERFLOW) in (Overflow.REJECT_PUBLISH, Overflow.REJECT_PUBLISH_DLX)

    @property
    def dead_letters_refused(self) -> bool:
        """Return whether the messages that it refuses are dead letters."""
        return self.arguments.get(X_OVERFLOW) == Overflow.REJECT_PUBLISH_DLX

    @property
    def expires_ms(self) -> int | None:
        """Return after which time without a use it is deleted; None is never."""
        return self._limit(X_EXPIRES)

    def _limit(self, name: str) -> int | None:
        value = self.arguments.get(name)
        return value if isinstance(value, int) and not self.is_stream else None

    @property
    def dead_letters(self) -> DeadLetters | None:
        """Return where its dead letters go; None if they are dropped."""
        exchange, key = self.arguments.get(X_DEAD_LETTER_EXCHANGE), self.arguments.get(X_DEAD_LETTER_ROUTING_KEY)
        if self.is_stream or not isinstance(exchange, str):
            return None
        strategy = self.arguments.get(X_DEAD_LETTER_STRATEGY, DeadLetterStrategy.AT_MOST_ONCE)
        return DeadLetters(
            ExchangeName(exchange), RoutingKey(key) if isinstance(key, str) else None, DeadLetterStrategy(str(strategy))
        )

    @property
    def delivery_limit(self) -> int | None:
        """Return how often its messages may come back after a delivery; None is any number."""
        value = self.arguments.get(X_DELIVERY_LIMIT)
        if value is None and self.kind is QueueKind.QUORUM:
            return QUORUM_DELIVERY_LIMIT
        return value if isinstance(value, int) and value >= 0 and not self.is_stream else None

    @property
    def retries(self) -> Retries | None:
        """Return how long messages that come back wait; None is not at all."""
        steps = self.arguments.get(X_RETRY_BACKOFF)
        kind = RetryType(str(self.arguments.get(X_DELAYED_RETRY_TYPE, RetryType.ALL if steps else RetryType.DISABLED)))
        if self.is_stream or kind is RetryType.DISABLED:
            return None
        if isinstance(steps, list):
            return Retries(kind, steps_ms=tuple(step for step in steps if isinstance(step, int)))
        min_ms = self._limit(X_DELAYED_RETRY_MIN)
        return None if min_ms is None else Retries(kind, min_ms, self._limit(X_DELAYED_RETRY_MAX))

    @property
    def deduplication(self) -> Deduplication | None:
        """Return how it recognizes repetitions; None is not at all."""
        return deduplication_in(self.arguments)

    @property
    def max_priority(self) -> int:
        """Return the highest priority of its messages; 0 for a queue that delivers them in their order."""
        value = self.arguments.get(X_MAX_PRIORITY)
        return value if isinstance(value, int) and not self.is_stream else 0

    @property
    def fair_key(self) -> str | None:
        """Return the header whose values take turns in delivery; None is no header."""
        value = self.arguments.get(X_FAIR_KEY)
        return value if isinstance(value, str) and not self.is_stream else None

    @property
    def single_active(self) -> bool:
        """Return whether one of its consumers at a time gets messages."""
        return self.arguments.get(X_SINGLE_ACTIVE) is True

    @property
    def consumer_timeout_ms(self) -> int | None:
        """Return how long its consumers may keep a message unsettled; None is any time."""
        value = self.arguments.get(X_CONSUMER_TIMEOUT)
        return value if isinstance(value, int) and not self.is_stream else None

    @property
    def last_id(self) -> QueueId:
        """Return the last of its ids: the log has the messages of each priority under an id of their own."""
        return QueueId(self.id + self.max_priority)


@dataclass(frozen=True, slots=True)
class Binding:
    source: ExchangeName
    destination_kind: DestinationKind
    destination: QueueName | ExchangeName
    routing_key: RoutingKey = NO_KEY
    arguments: Arguments = field(default_factory=dict)

    @property
    def identity(self) -> Frozen:
        """Return a value that is equal for equal bindings."""
        return (
            self.source,
            self.destination_kind,
            self.destination,
            self.routing_key,
            freeze_arguments(self.arguments),
        )


@dataclass(frozen=True, slots=True)
class Route:
    """The part of a binding that decides the routing; several bindings can share one.

    A headers exchange uses the arguments; direct, topic, x-super-stream and x-consistent-hash exchanges use the key,
    which is a partition's number for the third and a weight for the last; the others ignore both.
    """

    source: ExchangeName
    key: RoutingKey
    arguments: Arguments | None
    destination_kind: DestinationKind
    destination: QueueName | ExchangeName

    @property
    def identity(self) -> Frozen:
        matched = None if self.arguments is None else freeze_arguments(self.arguments)
        return (self.source, self.key, matched, self.destination_kind, self.destination)


def kind_of_queue(arguments: Arguments) -> QueueKind:
    """Return the type, classic unless the arguments say otherwise. Expects checked arguments."""
    return QueueKind(str(arguments.get(X_QUEUE_TYPE, QueueKind.CLASSIC)))


KEYED: Final = frozenset(
    {ExchangeKind.DIRECT, ExchangeKind.TOPIC, ExchangeKind.SUPER_STREAM, ExchangeKind.CONSISTENT_HASH}
)


def route_of(binding: Binding, kind: ExchangeKind) -> Route:
    """Return the route of a binding; `kind` is the source's."""
    key = binding.routing_key if kind in KEYED else NO_KEY
    arguments = binding.arguments if kind is ExchangeKind.HEADERS else None
    return Route(binding.source, key, arguments, binding.destination_kind, binding.destination)
