"""Which arguments a declaration may carry. What is not acted upon is refused, never stored and forgotten: a queue
that was promised a limit must have it. Arguments without the prefix `x-` are the client's own and are kept as they are.
"""

from typing import Final

from penstock.model.ages import age_ms
from penstock.model.arguments import Arguments, Value, check_arguments, show
from penstock.model.errors import InvalidArgumentError, Thing
from penstock.model.names import ExchangeName, exchange_name
from penstock.model.records import (
    ALTERNATE_KEYS,
    X_DEDICATED,
    X_LEVEL,
    X_MATCH,
    X_MAX_AGE,
    X_MAX_LENGTH_BYTES,
    X_PARTITIONS,
    X_QUEUE_TYPE,
    Binding,
    DestinationKind,
    ExchangeKind,
    HeadersMatch,
    Level,
    QueueKind,
    kind_of_queue,
)

QUEUE_TYPES: Final = tuple(QueueKind)
QUEUE_TYPES_LATER: Final = frozenset({"quorum", "mqtt"})
STREAM_ARGUMENTS: Final = frozenset({X_MAX_AGE, X_MAX_LENGTH_BYTES})
PARTITIONS_MAX: Final = 1_000
"""Far more than a machine has use for, and few enough to be declared in one write."""
BYTES_MAX: Final = 2**62
EXCHANGE_TYPES_LATER: Final = frozenset(
    {"x-delayed-message", "x-consistent-hash", "x-modulus-hash", "x-local-random", "x-random", "x-recent-history"}
)
QUEUE_ARGUMENTS_LATER: Final = frozenset(
    {
        "x-cache-size",
        "x-cache-ttl",
        "x-consumer-disconnected-timeout",
        "x-consumer-timeout",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-dead-letter-strategy",
        "x-deduplication-header",
        "x-delayed-retry-max",
        "x-delayed-retry-min",
        "x-delayed-retry-type",
        "x-delivery-limit",
        "x-expires",
        "x-initial-cluster-size",
        "x-max-age",
        "x-max-in-memory-bytes",
        "x-max-in-memory-length",
        "x-max-length",
        "x-max-length-bytes",
        "x-max-priority",
        "x-member-placement-tag",
        "x-message-deduplication",
        "x-message-ttl",
        "x-overflow",
        "x-queue-leader-locator",
        "x-queue-master-locator",
        "x-queue-mode",
        "x-queue-version",
        "x-quorum-initial-group-size",
        "x-quorum-target-group-size",
        "x-single-active-consumer",
        "x-stream-filter-size-bytes",
        "x-stream-max-segment-size-bytes",
    }
)
EXCHANGE_ARGUMENTS_LATER: Final = frozenset(
    {
        "x-algorithm",
        "x-cache-size",
        "x-cache-ttl",
        "x-deduplication-header",
        "x-delayed-exchange",
        "x-delayed-type",
        "x-hash-on",
        "x-message-deduplication",
        "x-persist-messages",
        "x-persist-ms",
        "x-recent-history-length",
        "x-recent-history-no-store",
        "x-super-stream",
    }
)


def check_queue_arguments(thing: Thing, arguments: Arguments) -> None:
    check_arguments(thing, arguments)
    for key in sorted(arguments):
        if key == X_QUEUE_TYPE:
            _check_choice(thing, key, arguments[key], QUEUE_TYPES, QUEUE_TYPES_LATER)
        elif key == X_LEVEL:
            _check_choice(thing, key, arguments[key], tuple(Level), frozenset({"replicated"}))
        elif key == X_DEDICATED and not isinstance(arguments[key], bool):
            rule = f"has an argument '{key}' whose value {show(arguments[key])} is not understood"
            raise _invalid(thing, key, rule, "send true or false, or leave the argument out")
    is_stream = kind_of_queue(arguments) is QueueKind.STREAM
    for key in sorted(arguments):
        if key in (X_QUEUE_TYPE, X_LEVEL, X_DEDICATED) or not key.startswith("x-"):
            continue
        if is_stream:
            _check_stream_argument(thing, key, arguments[key])
        elif key == X_MAX_AGE:
            way_out = f"declare it with '{X_QUEUE_TYPE}' = 'stream', or leave the argument out"
            raise _invalid(thing, key, f"has an argument '{key}' that only streams take", way_out)
        else:
            _refuse_argument(thing, key, QUEUE_ARGUMENTS_LATER)


def _check_stream_argument(thing: Thing, key: str, value: Value) -> None:
    if key not in STREAM_ARGUMENTS:
        if key not in QUEUE_ARGUMENTS_LATER:
            _refuse_argument(thing, key, QUEUE_ARGUMENTS_LATER)
        way_out = f"leave it out; a stream's bounds are '{X_MAX_AGE}' and '{X_MAX_LENGTH_BYTES}'"
        raise _invalid(thing, key, f"has an argument '{key}' that a stream does not take", way_out)
    problem = retention_problem(key, value)
    if problem:
        raise _invalid(thing, key, f"has an argument '{key}' whose value {show(value)} is not understood", problem)


def retention_problem(key: str, value: Value) -> str:
    """What to write instead of a bound of a stream that cannot be one; empty when it can."""
    if key == X_MAX_AGE:
        is_age = isinstance(value, str) and age_ms(value) is not None
        return "" if is_age else "write a number and a unit of Y, M, D, h, m or s, such as '7D' or '12h'"
    is_size = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= BYTES_MAX
    return "" if is_size else "write a number of bytes, at least 1"


def check_exchange_arguments(thing: Thing, arguments: Arguments, kind: ExchangeKind) -> None:
    check_arguments(thing, arguments)
    named: set[ExchangeName] = set()
    for key in sorted(arguments):
        if key in ALTERNATE_KEYS:
            named.add(_alternate(thing, key, arguments[key]))
        elif key == X_PARTITIONS and kind is ExchangeKind.SUPER_STREAM:
            check_partition_count(thing, arguments[key])
        elif key.startswith("x-"):
            _refuse_argument(thing, key, EXCHANGE_ARGUMENTS_LATER)
    if len(named) > 1:
        raise _invalid(
            thing, ALTERNATE_KEYS[1], "has two different alternate exchanges", "send one of the two arguments"
        )


def check_partition_count(thing: Thing, value: Value) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= PARTITIONS_MAX:
        way_out = f"send a number from 1 to {PARTITIONS_MAX:,}"
        raise _invalid(thing, "partitions", f"has a number of partitions {show(value)} that cannot be", way_out)


def check_exchange_kind(thing: Thing, kind: str) -> ExchangeKind:
    if kind in tuple(ExchangeKind):
        return ExchangeKind(kind)
    known = "is not supported yet" if kind in EXCHANGE_TYPES_LATER else "is unknown"
    raise _invalid(thing, "type", f"has a type '{kind[:64]}' that {known}", f"use one of {', '.join(ExchangeKind)}")


def check_binding_arguments(thing: Thing, binding: Binding, kind: ExchangeKind) -> None:
    """`kind` is the source's. Only a headers exchange looks at the arguments; others keep them for the client."""
    check_arguments(thing, binding.arguments)
    if kind is ExchangeKind.SUPER_STREAM:
        _check_partition(thing, binding)
    if kind is ExchangeKind.HEADERS and X_MATCH in binding.arguments:
        choices = tuple(match.value for match in HeadersMatch)
        _check_choice(thing, X_MATCH, binding.arguments[X_MATCH], choices, frozenset())


def _check_partition(thing: Thing, binding: Binding) -> None:
    """The key is the partition's number, written the one way in which numbers are written."""
    key = binding.routing_key
    is_number = key.isascii() and key.isdecimal() and key == str(int(key)) and int(key) < PARTITIONS_MAX
    if binding.destination_kind is not DestinationKind.QUEUE or not is_number:
        raise _invalid(
            thing,
            "routing_key",
            "does not tell which partition of the stream a queue is",
            f"bind stream queues, with keys from '0' to '{PARTITIONS_MAX - 1}'",
        )


def _alternate(thing: Thing, key: str, value: Value) -> ExchangeName:
    if not isinstance(value, str):
        raise _invalid(thing, key, f"has an argument '{key}' that is no text", "send the alternate exchange's name")
    return exchange_name(value)


def _check_choice(thing: Thing, key: str, value: Value, choices: tuple[str, ...], later: frozenset[str]) -> None:
    if isinstance(value, str) and value in choices:
        return
    known = "is not supported yet" if isinstance(value, str) and value in later else "is not known"
    way_out = f"use {' or '.join(choices)}, or leave the argument out"
    raise _invalid(thing, key, f"has an argument '{key}' whose value {show(value)} {known}", way_out)


def _refuse_argument(thing: Thing, key: str, later: frozenset[str]) -> None:
    known = "is not supported yet" if key in later else "is unknown"
    raise _invalid(thing, key, f"has an argument '{key}' that {known}", "leave the argument out")


def _invalid(thing: Thing, field: str, rule: str, way_out: str) -> InvalidArgumentError:
    return InvalidArgumentError(thing, rule, way_out, field=field)
