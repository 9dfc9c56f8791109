"""Checks declarations against the table of arguments.

An argument whose feature the broker lacks is refused, so that a queue never lacks a limit that its declaration
promised. Arguments that no broker is known to act upon are the client's own and are kept as they are.
"""

from typing import Final

from penstock.metadata.argument_table import BY_NAME, PARTITION_COUNT, PARTITIONS_MAX, Argument, Target
from penstock.model.arguments import Arguments, Value, check_arguments, show
from penstock.model.errors import InvalidArgumentError, Thing
from penstock.model.records import (
    ALTERNATE_KEYS,
    HASH_HEADER_KEYS,
    HASH_PROPERTY,
    X_DEAD_LETTER_EXCHANGE,
    X_DEAD_LETTER_ROUTING_KEY,
    X_DELAYED_TYPE,
    X_MATCH,
    X_MAX_AGE,
    X_MAX_LENGTH_BYTES,
    X_PARTITIONS,
    X_QUEUE_TYPE,
    Binding,
    DestinationKind,
    ExchangeKind,
    QueueKind,
    kind_of_queue,
)

OWN_PREFIX: Final = "x-penstock-"
"""Prefix of the arguments by which `definitions.amqp` has what is no part of a declaration."""
CONSUMED: Final = frozenset({Target.CLASSIC, Target.QUORUM})
WEIGHT_MAX: Final = 2**31 - 1
"""A weight costs no memory, so this is only what every client's integers have."""
_TARGET_OF_KIND: Final = {
    ExchangeKind.SUPER_STREAM: Target.PARTITIONED,
    ExchangeKind.CONSISTENT_HASH: Target.HASHING,
    ExchangeKind.DELAYED: Target.DELAYED,
    ExchangeKind.RECENT_HISTORY: Target.HISTORY,
}
_HASH_KEYS: Final = (*HASH_HEADER_KEYS, HASH_PROPERTY)


def check_queue_arguments(thing: Thing, arguments: Arguments) -> None:
    check_arguments(thing, arguments)
    if X_QUEUE_TYPE in arguments:
        _check_value(thing, BY_NAME[X_QUEUE_TYPE], arguments[X_QUEUE_TYPE])
    target = target_of(kind_of_queue(arguments))
    for key in sorted(arguments):
        if key.startswith("x-"):
            _check_argument(thing, key, arguments[key], frozenset({target}))
    if X_DEAD_LETTER_ROUTING_KEY in arguments and X_DEAD_LETTER_EXCHANGE not in arguments:
        way_out = f"declare it with '{X_DEAD_LETTER_EXCHANGE}', too, or leave the argument out"
        rule = f"has an argument '{X_DEAD_LETTER_ROUTING_KEY}' and no dead-letter exchange"
        raise _invalid(thing, X_DEAD_LETTER_ROUTING_KEY, rule, way_out)


def target_of(kind: QueueKind) -> Target:
    """Return the rows of the table that hold for queues of a type."""
    return {QueueKind.STREAM: Target.STREAM, QueueKind.QUORUM: Target.QUORUM}.get(kind, Target.CLASSIC)


def check_exchange_arguments(thing: Thing, arguments: Arguments, kind: ExchangeKind) -> None:
    check_arguments(thing, arguments)
    routing_kind = _routing_kind(kind, arguments)
    targets = {Target.EXCHANGE, _TARGET_OF_KIND.get(kind, Target.EXCHANGE)}
    targets.add(_TARGET_OF_KIND.get(routing_kind, Target.EXCHANGE))
    for key in sorted(arguments):
        if key == X_PARTITIONS and Target.PARTITIONED in targets:
            check_partition_count(thing, arguments[key])
        elif key.startswith("x-") or key in ALTERNATE_KEYS or (key in _HASH_KEYS and Target.HASHING in targets):
            _check_argument(thing, key, arguments[key], frozenset(targets))
    if len({arguments[key] for key in ALTERNATE_KEYS if key in arguments}) > 1:  # both are texts by now
        raise _invalid(
            thing, ALTERNATE_KEYS[1], "has two different alternate exchanges", "send one of the two arguments"
        )
    hashed = [key for key in _HASH_KEYS if key in arguments and Target.HASHING in targets]
    if len(hashed) > 1:
        raise _invalid(thing, hashed[1], f"has {hashed[0]} and {hashed[1]}, which are mutually exclusive", "send one")


def _routing_kind(kind: ExchangeKind, arguments: Arguments) -> ExchangeKind:
    """Return the type by which an exchange with these unchecked arguments routes."""
    value = arguments.get(X_DELAYED_TYPE)
    is_named = kind is ExchangeKind.DELAYED and isinstance(value, str) and value in tuple(ExchangeKind)
    return ExchangeKind(str(value)) if is_named else kind


def check_delayed_type(thing: Thing, arguments: Arguments, kind: ExchangeKind) -> None:
    """Check that an exchange that delays messages says how it routes."""
    if kind is ExchangeKind.DELAYED and X_DELAYED_TYPE not in arguments:
        rule = f"has no argument '{X_DELAYED_TYPE}', which must be an existing exchange type"
        raise _invalid(thing, X_DELAYED_TYPE, rule, "declare it with that argument, such as 'direct'")


def check_partition_count(thing: Thing, value: Value) -> None:
    if not PARTITION_COUNT.accepts(value):
        rule = f"has an invalid number of partitions: {show(value)}"
        raise _invalid(thing, "partitions", rule, PARTITION_COUNT.wanted)


def check_exchange_kind(thing: Thing, kind: str) -> ExchangeKind:
    if kind in tuple(ExchangeKind):
        return ExchangeKind(kind)
    raise _invalid(thing, "type", f"has a type '{kind[:64]}' that is unknown", f"use one of {', '.join(ExchangeKind)}")


def check_binding_arguments(thing: Thing, binding: Binding, kind: ExchangeKind) -> None:
    """Check the arguments of a binding whose source has that kind. Only a headers exchange acts upon them."""
    check_arguments(thing, binding.arguments)
    if kind is ExchangeKind.SUPER_STREAM:
        _check_partition(thing, binding)
    if kind is ExchangeKind.HEADERS and X_MATCH in binding.arguments:
        _check_value(thing, BY_NAME[X_MATCH], binding.arguments[X_MATCH])
    if kind is ExchangeKind.CONSISTENT_HASH:
        _check_weight(thing, binding.routing_key)
    if kind is ExchangeKind.LOCAL_RANDOM:
        _check_local(thing, binding)


def _check_weight(thing: Thing, key: str) -> None:
    way_out = f"bind with a weight from '1' to '{WEIGHT_MAX}' as the routing key"
    # Longer ones are not read: reading a number of many digits takes long.
    if not (key.isascii() and key.isdecimal() and len(key) <= len(str(WEIGHT_MAX))):
        raise _invalid(thing, "routing_key", f"has the binding key '{key[:32]}', which must be an integer", way_out)
    if not 0 < int(key) <= WEIGHT_MAX:
        raise _invalid(thing, "routing_key", f"has the binding key '{key}', which is out of range", way_out)


def _check_local(thing: Thing, binding: Binding) -> None:
    if binding.destination_kind is not DestinationKind.QUEUE:
        raise _invalid(thing, "destination", "leads to an exchange, which may not be local", "bind queues")
    if binding.routing_key:
        rule = f"has a non empty binding key '{binding.routing_key[:32]}', which is not permitted"
        raise _invalid(thing, "routing_key", rule, "bind with an empty one")


def _check_partition(thing: Thing, binding: Binding) -> None:
    """Check that the key is the partition's number in decimal, without leading zeros."""
    key = binding.routing_key
    is_number = key.isascii() and key.isdecimal() and key == str(int(key)) and int(key) < PARTITIONS_MAX
    if binding.destination_kind is not DestinationKind.QUEUE or not is_number:
        raise _invalid(
            thing,
            "routing_key",
            "does not name the number of a partition",
            f"bind stream queues, with keys from '0' to '{PARTITIONS_MAX - 1}'",
        )


def _check_argument(thing: Thing, key: str, value: Value, targets: frozenset[Target]) -> None:
    row = BY_NAME.get(key)
    if row is not None and row.applies_to & targets:
        _check_value(thing, row, value)
    elif row is not None and Target.STREAM in targets and (row.planned | row.applies_to) & {Target.CLASSIC}:
        way_out = f"leave it out; a stream's bounds are '{X_MAX_AGE}' and '{X_MAX_LENGTH_BYTES}'"
        raise _invalid(thing, key, f"has an argument '{key}' that streams do not support", way_out)
    elif row is not None and targets & CONSUMED and row.applies_to == {Target.STREAM} and not row.planned:
        way_out = f"declare it with '{X_QUEUE_TYPE}' = 'stream', or leave the argument out"
        raise _invalid(thing, key, f"has an argument '{key}' that only streams support", way_out)
    elif row is not None and row.planned & targets:
        raise _invalid(thing, key, f"has an argument '{key}' that is not supported yet", "leave the argument out")
    elif key.startswith(OWN_PREFIX):
        raise _invalid(thing, key, f"has an argument '{key}' that only the broker sets", "leave the argument out")


def _check_value(thing: Thing, row: Argument, value: Value) -> None:
    assert row.type is not None
    if row.type.accepts(value):
        return
    is_planned = isinstance(value, str) and value in row.type.planned
    known = "is not supported yet" if is_planned else "is not valid"
    way_out = f"{row.type.wanted}, or leave the argument out"
    raise _invalid(thing, row.name, f"has an argument '{row.name}' whose value {show(value)} {known}", way_out)


def _invalid(thing: Thing, field: str, rule: str, way_out: str) -> InvalidArgumentError:
    return InvalidArgumentError(thing, rule, way_out, field=field)
