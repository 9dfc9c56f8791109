"""The arguments of queues, exchanges and bindings, and the keys of policies that set them: one row each.

To support an argument, write its type into its row and move its targets from `planned` to `applies_to`; the rules of
declarations and policies and the documentation follow. Arguments without the prefix `x-` that have no row belong to the
client.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from penstock.model.ages import age_ms
from penstock.model.arguments import KEY_BYTES_MAX, Value
from penstock.model.names import exchange_name, routing_key
from penstock.model.records import (
    ALTERNATE_KEYS,
    HASH_HEADER_KEYS,
    HASH_PROPERTY,
    X_ALGORITHM,
    X_CACHE_SIZE,
    X_CACHE_TTL,
    X_CONSUMER_TIMEOUT,
    X_DEAD_LETTER_EXCHANGE,
    X_DEAD_LETTER_ROUTING_KEY,
    X_DEAD_LETTER_STRATEGY,
    X_DEDICATED,
    X_DEDUPLICATION_HEADER,
    X_DELAYED_EXCHANGE,
    X_DELAYED_RETRY_MAX,
    X_DELAYED_RETRY_MIN,
    X_DELAYED_RETRY_TYPE,
    X_DELAYED_TYPE,
    X_DELIVERY_LIMIT,
    X_DURABILITY,
    X_EXPIRES,
    X_FAIR_KEY,
    X_MATCH,
    X_MAX_AGE,
    X_MAX_LENGTH,
    X_MAX_LENGTH_BYTES,
    X_MAX_PRIORITY,
    X_MESSAGE_DEDUPLICATION,
    X_MESSAGE_TTL,
    X_OVERFLOW,
    X_PARTITIONS,
    X_QUEUE_TYPE,
    X_RECENT_HISTORY_LENGTH,
    X_RETRY_BACKOFF,
    X_SINGLE_ACTIVE,
    DeadLetterStrategy,
    Durability,
    ExchangeKind,
    HashAlgorithm,
    HashProperty,
    HeadersMatch,
    Overflow,
    QueueKind,
    RetryType,
)

BYTES_MAX: Final = 2**62
TTL_MS_MAX: Final = 3_155_760_000_000
"""A hundred years."""
RETRY_STEPS_MAX: Final = 100
PRIORITY_MAX: Final = 255
DELIVERIES_MAX: Final = 2**31 - 2
"""Deliveries are counted up to there."""
CACHE_SIZE_MAX: Final = 1_000_000
"""Some 150 MB of memory: a window is in memory twice, once for the queue and once for the next checkpoint."""
HISTORY_MAX: Final = 1_000
"""Copies of all are stored in one envelope, which has at most 4,096 records."""
PARTITIONS_MAX: Final = 1_000
"""Far more than a machine has use for, and few enough to be declared in one write."""


class Target(Enum):
    """The kinds of things that arguments belong to."""

    CLASSIC = "classic queues"
    QUORUM = "quorum queues"
    STREAM = "streams"
    EXCHANGE = "exchanges"
    PARTITIONED = "partitioned streams"
    DELAYED = "`x-delayed-message` exchanges"
    HASHING = "`x-consistent-hash` exchanges"
    HISTORY = "`x-recent-history` exchanges"
    BINDING = "bindings of headers exchanges"


@dataclass(frozen=True, slots=True)
class ValueType:
    """The values that an argument takes.

    `wanted` is what to write instead of others; `planned` are values of other brokers that this version does not
    support. `may_be_empty` says that an empty text is a value of a policy, too. `schema` is a JSON schema of the
    values, for the operator's kinds; without it, only the broker checks them.
    """

    wanted: str
    accepts: Callable[[Value], bool]
    planned: frozenset[str] = frozenset()
    may_be_empty: bool = False
    schema: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Argument:
    """One row of the table.

    `stricter` returns whether an operator's value (the first) limits another more; without it operators cannot set the
    key. `engine_field` is the property of a queue or an exchange by which the engine gets the value.
    """

    name: str
    applies_to: frozenset[Target] = frozenset()
    type: ValueType | None = None
    planned: frozenset[Target] = frozenset()
    policy_key: str = ""
    stricter: Callable[[Value, Value], bool] | None = None
    engine_field: str = ""
    about: str = ""


def choice(values: type[Enum], *planned: str) -> ValueType:
    names = tuple(str(each.value) for each in values)
    return ValueType(
        f"use {' or '.join(names)}",
        lambda value: isinstance(value, str) and value in names,
        frozenset(planned),
        schema={"type": "string", "enum": list(names)},
    )


def integers(low: int, high: int) -> dict[str, object]:
    """Return the schema of whole numbers."""
    return {"type": "integer", "minimum": low, "maximum": high}


def is_age(value: Value) -> bool:
    return isinstance(value, str) and age_ms(value) is not None


def is_size(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= BYTES_MAX


def is_ttl(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= TTL_MS_MAX


def is_count(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= BYTES_MAX


def is_duration(value: Value) -> bool:
    return is_ttl(value) and value != 0


def is_priority(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= PRIORITY_MAX


def is_partition_count(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= PARTITIONS_MAX


def is_history_length(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= HISTORY_MAX


def is_cache_size(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= CACHE_SIZE_MAX


def is_scalar(value: Value) -> bool:
    return isinstance(value, bool | int | float | str)


def is_header_name(value: Value) -> bool:
    return isinstance(value, str) and 0 < len(value.encode()) <= KEY_BYTES_MAX


def is_delayed_type(value: Value) -> bool:
    others = (ExchangeKind.DELAYED, ExchangeKind.SUPER_STREAM, ExchangeKind.RECENT_HISTORY)
    return isinstance(value, str) and value in {kind.value for kind in ExchangeKind if kind not in others}


def is_exchange(value: Value) -> bool:
    """Raise for a text that cannot be a name."""
    return isinstance(value, str) and exchange_name(value) == value


def is_routing_key(value: Value) -> bool:
    """Raise for a text that cannot be a key."""
    return isinstance(value, str) and routing_key(value) == value


def is_delivery_limit(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= DELIVERIES_MAX


def is_back_off(value: Value) -> bool:
    return isinstance(value, list) and 1 <= len(value) <= RETRY_STEPS_MAX and all(is_ttl(step) for step in value)


def is_safer(one: Value, other: Value) -> bool:
    return one == Durability.DISK and other != Durability.DISK


def is_shorter(one: Value, other: Value) -> bool:
    return (age_ms(str(one)) or 0) < (age_ms(str(other)) or 0)


def is_fewer(one: Value, other: Value) -> bool:
    """Compare limits of which a negative one is no limit."""
    return isinstance(one, int) and isinstance(other, int) and one >= 0 and (other < 0 or one < other)


def is_smaller(one: Value, other: Value) -> bool:
    return isinstance(one, int) and isinstance(other, int) and one < other


_NAME: Final[Mapping[str, object]] = {"type": "string", "maxLength": KEY_BYTES_MAX}
_AGE: Final[Mapping[str, object]] = {"type": "string", "maxLength": 16, "pattern": "^[0-9]+[YMDhms]$"}

BOOLEAN: Final = ValueType("send true or false", lambda value: isinstance(value, bool), schema={"type": "boolean"})
AGE: Final = ValueType("write a number and a unit of Y, M, D, h, m or s, such as '7D' or '12h'", is_age, schema=_AGE)
TTL: Final = ValueType("write a number of milliseconds, at least 0", is_ttl, schema=integers(0, TTL_MS_MAX))
COUNT: Final = ValueType("write a number of messages, at least 0", is_count, schema=integers(0, BYTES_MAX))
DURATION: Final = ValueType("write a number of milliseconds, at least 1", is_duration, schema=integers(1, TTL_MS_MAX))
SIZE: Final = ValueType("write a number of bytes, at least 1", is_size, schema=integers(1, BYTES_MAX))
PRIORITY: Final = ValueType(f"write a number from 0 to {PRIORITY_MAX}", is_priority, schema=integers(0, PRIORITY_MAX))
PARTITION_COUNT: Final = ValueType(
    f"send a number from 1 to {PARTITIONS_MAX:,}", is_partition_count, schema=integers(1, PARTITIONS_MAX)
)
CACHE: Final = ValueType(
    f"write a number from 1 to {CACHE_SIZE_MAX:,}", is_cache_size, schema=integers(1, CACHE_SIZE_MAX)
)
HISTORY: Final = ValueType(
    f"write a number of messages from 1 to {HISTORY_MAX:,}", is_history_length, schema=integers(1, HISTORY_MAX)
)
DELAYED_TYPE: Final = ValueType("use the type of an exchange", is_delayed_type, schema=_NAME)
HEADER_NAME: Final = ValueType("use the name of a header", is_header_name, schema={**_NAME, "minLength": 1})
EXCHANGE_NAME: Final = ValueType("use the name of an exchange", is_exchange, schema=_NAME)
SCALAR: Final = ValueType("send a text, a number, or true or false", is_scalar)
ANY_EXCHANGE_NAME: Final = ValueType("use the name of an exchange", is_exchange, may_be_empty=True, schema=_NAME)
ROUTING_KEY: Final = ValueType(
    "use a routing key of at most 255 bytes", is_routing_key, may_be_empty=True, schema=_NAME
)
DELIVERY_LIMIT: Final = ValueType(
    "write a number of deliveries, at least 0, or -1 for no limit",
    is_delivery_limit,
    schema=integers(-1, DELIVERIES_MAX),
)
BACK_OFF: Final = ValueType(
    f"send a list of 1 to {RETRY_STEPS_MAX} numbers of milliseconds",
    is_back_off,
    schema={"type": "array", "minItems": 1, "maxItems": RETRY_STEPS_MAX, "items": integers(0, TTL_MS_MAX)},
)

_CLASSIC: Final = frozenset({Target.CLASSIC, Target.QUORUM})
_STREAMS: Final = frozenset({Target.STREAM})
_QUEUES: Final = _CLASSIC | _STREAMS
_EXCHANGES: Final = frozenset({Target.EXCHANGE})
_HASHING: Final = frozenset({Target.HASHING})
_NONE: Final[frozenset[Target]] = frozenset()


def _stored(*names: str, has_key: bool = True) -> tuple[Argument, ...]:
    """Return rows of arguments that only tune another broker's storage or placement, for all kinds of queues."""
    about = "stored and shown; it has no effect here"
    return tuple(
        Argument(name, _QUEUES, SCALAR, policy_key=name.removeprefix("x-") if has_key else "", about=about)
        for name in names
    )


def _planned_argument(targets: frozenset[Target], *names: str) -> tuple[Argument, ...]:
    """Return rows of arguments that no policy sets."""
    return tuple(Argument(name, planned=targets) for name in names)


def _planned_key(*keys: str) -> tuple[Argument, ...]:
    """Return rows of policy keys that no declaration has."""
    return tuple(Argument("", policy_key=key) for key in keys)


ARGUMENTS: Final[tuple[Argument, ...]] = (
    Argument(
        X_QUEUE_TYPE,
        _QUEUES,
        choice(QueueKind, "mqtt"),
        engine_field="kind",
        about="consumers empty a classic or a quorum queue; a stream is read and kept; a quorum queue is durable",
    ),
    Argument(
        X_DURABILITY,
        _QUEUES,
        choice(Durability, "replicated"),
        policy_key="durability",
        stricter=is_safer,
        engine_field="durability",
        about="durability: what a confirm of the queue's messages promises",
    ),
    Argument(X_DEDICATED, _QUEUES, BOOLEAN, engine_field="is_dedicated", about="the queue has a log of its own"),
    Argument(
        X_MAX_AGE,
        _STREAMS,
        AGE,
        policy_key="max-age",
        stricter=is_shorter,
        engine_field="retention",
        about="the stream drops older messages",
    ),
    Argument(
        X_MAX_LENGTH,
        _CLASSIC,
        COUNT,
        policy_key="max-length",
        stricter=is_smaller,
        engine_field="messages_max",
        about="the number of messages that makes the queue full",
    ),
    Argument(
        X_MAX_LENGTH_BYTES,
        _QUEUES,
        SIZE,
        policy_key="max-length-bytes",
        stricter=is_smaller,
        engine_field="bytes_max",
        about="the bytes of bodies that make the queue full; a stream drops its oldest messages beyond this size",
    ),
    Argument(
        X_OVERFLOW,
        _CLASSIC,
        choice(Overflow),
        policy_key="overflow",
        engine_field="rejects_publish",
        about="whether a full queue drops its oldest messages, the default, or refuses new ones (-dlx: dead letters)",
    ),
    Argument(
        X_EXPIRES,
        _CLASSIC,
        DURATION,
        policy_key="expires",
        stricter=is_smaller,
        engine_field="expires_ms",
        about="the queue is deleted when it was unused for so long",
    ),
    Argument(
        X_MESSAGE_TTL,
        _CLASSIC,
        TTL,
        policy_key="message-ttl",
        stricter=is_smaller,
        engine_field="message_ttl_ms",
        about="the queue drops messages that it has had for so long",
    ),
    Argument(
        X_DEAD_LETTER_EXCHANGE,
        _CLASSIC,
        ANY_EXCHANGE_NAME,
        policy_key="dead-letter-exchange",
        engine_field="dead_letters",
        about="the exchange for messages that leave the queue without an ack",
    ),
    Argument(
        X_DEAD_LETTER_ROUTING_KEY,
        _CLASSIC,
        ROUTING_KEY,
        policy_key="dead-letter-routing-key",
        engine_field="dead_letters",
        about="their routing key; without it they keep theirs",
    ),
    Argument(
        X_DEAD_LETTER_STRATEGY,
        _CLASSIC,
        choice(DeadLetterStrategy),
        policy_key="dead-letter-strategy",
        engine_field="dead_letters",
        about="whether a message that no queue takes is dropped, or stays and is tried again",
    ),
    Argument(
        X_DELIVERY_LIMIT,
        _CLASSIC,
        DELIVERY_LIMIT,
        policy_key="delivery-limit",
        stricter=is_fewer,
        engine_field="delivery_limit",
        about="how often a message may come back after a delivery; then it leaves the queue",
    ),
    Argument(
        X_DELAYED_RETRY_TYPE,
        _CLASSIC,
        choice(RetryType),
        policy_key="delayed-retry-type",
        engine_field="retries",
        about="which messages that come back wait before they are ready again",
    ),
    Argument(
        X_DELAYED_RETRY_MIN,
        _CLASSIC,
        TTL,
        policy_key="delayed-retry-min",
        engine_field="retries",
        about="how long they wait for each of their deliveries",
    ),
    Argument(
        X_DELAYED_RETRY_MAX,
        _CLASSIC,
        TTL,
        policy_key="delayed-retry-max",
        engine_field="retries",
        about="how long they wait at most",
    ),
    Argument(
        X_RETRY_BACKOFF,
        _CLASSIC,
        BACK_OFF,
        policy_key="retry-backoff",
        engine_field="retries",
        about="how long they wait after each delivery instead; the last number repeats",
    ),
    Argument(
        X_MAX_PRIORITY,
        _CLASSIC,
        PRIORITY,
        engine_field="max_priority",
        about="the queue delivers messages of a higher priority first, up to this one; it cannot change",
    ),
    Argument(
        X_FAIR_KEY,
        _CLASSIC,
        HEADER_NAME,
        policy_key="fair-key",
        engine_field="fair_key",
        about="the header whose values take turns in delivery ([fair keys](#fair-keys))",
    ),
    Argument(
        X_SINGLE_ACTIVE,
        _CLASSIC,
        BOOLEAN,
        engine_field="single_active",
        about="one consumer at a time gets messages; when it leaves, the next one does",
    ),
    Argument(
        X_CONSUMER_TIMEOUT,
        _CLASSIC,
        DURATION,
        policy_key="consumer-timeout",
        stricter=is_smaller,
        engine_field="consumer_timeout_ms",
        about="the broker ends a consumer that keeps a message unsettled for longer, and returns its messages",
    ),
    *(
        Argument(
            name,
            _EXCHANGES,
            EXCHANGE_NAME,
            policy_key="alternate-exchange" if name == ALTERNATE_KEYS[0] else "",
            engine_field="alternate",
            about="the exchange for messages that match no binding",
        )
        for name in ALTERNATE_KEYS
    ),
    Argument(
        X_DELAYED_TYPE,
        frozenset({Target.DELAYED}),
        DELAYED_TYPE,
        engine_field="routing_kind",
        about="the type by which the exchange routes; required ([delayed messages](exchanges.md#delayed-messages))",
    ),
    Argument(
        X_DELAYED_EXCHANGE,
        _EXCHANGES,
        BOOLEAN,
        policy_key="delayed-message",
        engine_field="is_delayed",
        about="the exchange delays messages with the header `x-delay`, as one of type `x-delayed-message` does",
    ),
    Argument(
        X_MESSAGE_DEDUPLICATION,
        _QUEUES | _EXCHANGES,
        BOOLEAN,
        policy_key="message-deduplication",
        engine_field="deduplication",
        about="whether repeated messages are confirmed and not stored ([deduplication](exchanges.md#deduplication))",
    ),
    Argument(
        X_DEDUPLICATION_HEADER,
        _QUEUES | _EXCHANGES,
        HEADER_NAME,
        policy_key="deduplication-header",
        engine_field="deduplication",
        about="the header by which repetitions are recognized, else `x-deduplication-header`",
    ),
    Argument(
        X_CACHE_SIZE,
        _QUEUES | _EXCHANGES,
        CACHE,
        policy_key="cache-size",
        engine_field="deduplication",
        about="how many values of that header are remembered, else 128",
    ),
    Argument(
        X_CACHE_TTL,
        _QUEUES | _EXCHANGES,
        TTL,
        policy_key="cache-ttl",
        engine_field="deduplication",
        about="for how long they are remembered, unless newer ones need the place before",
    ),
    Argument(
        X_ALGORITHM,
        _HASHING,
        choice(HashAlgorithm),
        engine_field="algorithm",
        about="how the hash chooses a binding ([exchanges](exchanges.md#exchanges-that-choose-one-binding))",
    ),
    *(
        Argument(
            name,
            _HASHING,
            HEADER_NAME,
            engine_field="hash_header",
            about="the header that is hashed instead of the routing key",
        )
        for name in HASH_HEADER_KEYS
    ),
    Argument(
        HASH_PROPERTY,
        _HASHING,
        choice(HashProperty),
        engine_field="hash_property",
        about="the property that is hashed instead of the routing key",
    ),
    Argument(
        X_RECENT_HISTORY_LENGTH,
        frozenset({Target.HISTORY}),
        HISTORY,
        engine_field="history_length",
        about="how many messages the exchange keeps, else 20 ([recent history](exchanges.md#recent-history))",
    ),
    Argument(
        X_PARTITIONS,
        frozenset({Target.PARTITIONED}),
        PARTITION_COUNT,
        engine_field="partition_count",
        about="the number of partitions; it cannot change",
    ),
    Argument(
        X_MATCH,
        frozenset({Target.BINDING}),
        choice(HeadersMatch),
        about="whether all or any of the binding's arguments must equal the message's headers",
    ),
    *_stored(
        *("x-consumer-disconnected-timeout", "x-initial-cluster-size", "x-max-in-memory-bytes"),
        *("x-max-in-memory-length", "x-queue-leader-locator", "x-queue-mode", "x-queue-version"),
        *("x-stream-filter-size-bytes", "x-stream-max-segment-size-bytes"),
    ),
    *_stored(
        *("x-member-placement-tag", "x-queue-master-locator", "x-quorum-initial-group-size"),
        "x-quorum-target-group-size",
        has_key=False,
    ),
    *_planned_argument(
        _EXCHANGES,
        *("x-persist-messages", "x-persist-ms"),
        "x-super-stream",
    ),
    *_planned_key("federation-upstream", "federation-upstream-set"),
)

BY_NAME: Final[Mapping[str, Argument]] = {row.name: row for row in ARGUMENTS if row.name}
BY_POLICY_KEY: Final[Mapping[str, Argument]] = {
    row.policy_key: row for row in ARGUMENTS if row.policy_key and row.applies_to
}
PLANNED_POLICY_KEYS: Final = frozenset(row.policy_key for row in ARGUMENTS if row.policy_key and not row.applies_to)


def document() -> str:
    """Return the supported rows as a table for docs/configuration.md."""
    lines = ["| argument | of | value | policy key | operators | effect |", "|---|---|---|---|---|---|"]
    for row in ARGUMENTS:
        if row.type is not None:
            targets = ", ".join(target.value for target in Target if target in row.applies_to)
            wanted = row.type.wanted.removeprefix("use ").removeprefix("send ").removeprefix("write ")
            key = f"`{row.policy_key}`" if row.policy_key else ""
            lines.append(
                f"| `{row.name}` | {targets} | {wanted} | {key} | {'yes' if row.stricter else ''} | {row.about} |"
            )
    return "\n".join(lines) + "\n"
