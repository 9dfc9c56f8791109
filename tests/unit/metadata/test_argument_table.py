"""Walks the table of arguments.

Each row has a rule, a place in the engine, a policy's key that works, and a line of documentation.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.metadata.argument_rules import check_exchange_arguments, check_queue_arguments
from penstock.metadata.argument_table import (
    AGE,
    ANY_EXCHANGE_NAME,
    ARGUMENTS,
    BACK_OFF,
    BOOLEAN,
    BY_NAME,
    BY_POLICY_KEY,
    CACHE,
    COUNT,
    DELAYED_TYPE,
    DELIVERY_LIMIT,
    DURATION,
    EXCHANGE_NAME,
    HEADER_NAME,
    HISTORY,
    PARTITION_COUNT,
    PLANNED_POLICY_KEYS,
    PRIORITY,
    ROUTING_KEY,
    SCALAR,
    SIZE,
    TTL,
    Argument,
    Target,
    document,
    is_fewer,
)
from penstock.metadata.policies import check_policy, make_policy
from penstock.model.arguments import Arguments, Value
from penstock.model.errors import InvalidArgumentError, Thing
from penstock.model.records import (
    X_DEAD_LETTER_EXCHANGE,
    X_DEAD_LETTER_ROUTING_KEY,
    DeadLetterStrategy,
    Durability,
    Exchange,
    ExchangeKind,
    HashAlgorithm,
    HashProperty,
    HeadersMatch,
    Overflow,
    Queue,
    QueueKind,
    RetryType,
)

CONFIGURATION = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"
SUPPORTED = [row for row in ARGUMENTS if row.type is not None]
PLANNED = [row for row in ARGUMENTS if row.planned]
THING = Thing("queue", "q", "/")
STREAM: Arguments = {"x-queue-type": "stream"}


def name_of(row: Argument) -> str:
    return row.name or row.policy_key


def good(row: Argument) -> Value:
    by_type: list[tuple[object, Value]] = [
        (BOOLEAN, True),
        (AGE, "7D"),
        (SIZE, 5_000),
        (EXCHANGE_NAME, "lost"),
        (PARTITION_COUNT, 4),
        (TTL, 60_000),
        (PRIORITY, 5),
        (SCALAR, "lazy"),
        (COUNT, 100),
        (DURATION, 60_000),
        (HEADER_NAME, "user"),
        (DELAYED_TYPE, "topic"),
        (ANY_EXCHANGE_NAME, ""),
        (ROUTING_KEY, ""),
        (DELIVERY_LIMIT, -1),
        (BACK_OFF, [0, 1_000]),
        (CACHE, 1_000_000),
        (HISTORY, 20),
    ]
    found = [value for type_, value in by_type if row.type is type_]
    choices = {
        "x-queue-type": QueueKind.STREAM,
        "x-durability": Durability.DISK,
        "x-overflow": Overflow.REJECT_PUBLISH,
        "x-dead-letter-strategy": DeadLetterStrategy.AT_LEAST_ONCE,
        "x-delayed-retry-type": RetryType.FAILED,
        "x-match": HeadersMatch.ANY,
        "x-algorithm": HashAlgorithm.JUMP,
        "hash-property": HashProperty.TIMESTAMP,
    }
    return found[0] if found else str(choices[row.name].value)


def declare(row: Argument, target: Target, value: Value) -> None:
    if target is Target.STREAM:
        check_queue_arguments(THING, {**STREAM, row.name: value})
    elif target in (Target.CLASSIC, Target.QUORUM):
        kind_of: Arguments = {"x-queue-type": "quorum"} if target is Target.QUORUM else {}
        needed: Arguments = {X_DEAD_LETTER_EXCHANGE: ""} if row.name == X_DEAD_LETTER_ROUTING_KEY else {}
        check_queue_arguments(THING, {**kind_of, **needed, row.name: value})
    else:
        kinds = {
            Target.PARTITIONED: ExchangeKind.SUPER_STREAM,
            Target.HASHING: ExchangeKind.CONSISTENT_HASH,
            Target.DELAYED: ExchangeKind.DELAYED,
            Target.HISTORY: ExchangeKind.RECENT_HISTORY,
        }
        kind = kinds.get(target, ExchangeKind.TOPIC)
        check_exchange_arguments(THING, {row.name: value}, kind)


def test_each_name_and_each_key_has_one_row() -> None:
    names = [row.name for row in ARGUMENTS if row.name]
    keys = [row.policy_key for row in ARGUMENTS if row.policy_key]

    assert len(BY_NAME) == len(names)
    assert len(keys) == len(set(keys))
    assert PLANNED_POLICY_KEYS.isdisjoint(BY_POLICY_KEY)


@pytest.mark.parametrize("row", SUPPORTED, ids=name_of)
def test_a_declaration_takes_good_values_and_refuses_others(row: Argument) -> None:
    for target in row.applies_to - {Target.BINDING}:
        declare(row, target, good(row))
        with pytest.raises(InvalidArgumentError) as refused:
            declare(row, target, [])
        assert refused.value.field in (row.name, "partitions")


@pytest.mark.parametrize("row", PLANNED, ids=name_of)
def test_a_planned_argument_is_refused_by_name(row: Argument) -> None:
    for target in row.planned:
        with pytest.raises(InvalidArgumentError, match=f"'{row.name}' that is not supported yet"):
            declare(row, target, 1)


@pytest.mark.parametrize("row", [row for row in SUPPORTED if row.engine_field], ids=name_of)
def test_the_engine_gets_the_value_by_a_property(row: Argument) -> None:
    owner: type = Queue if row.applies_to & {Target.CLASSIC, Target.STREAM} else Exchange

    assert isinstance(getattr(owner, row.engine_field), property)


@pytest.mark.parametrize("row", BY_POLICY_KEY.values(), ids=name_of)
def test_a_policy_sets_it_and_an_operator_where_values_can_be_compared(row: Argument) -> None:
    apply_to = "streams" if row.applies_to == {Target.STREAM} else "all"
    policy = make_policy("p", ".*", apply_to, 0, {row.policy_key: good(row)})

    check_policy("/", policy, is_operator=False)
    if row.stricter is None:
        with pytest.raises(InvalidArgumentError, match="is not an operator's"):
            check_policy("/", policy, is_operator=True)
    else:
        check_policy("/", policy, is_operator=True)
        assert not row.stricter(good(row), good(row))
    with pytest.raises(InvalidArgumentError) as refused:
        check_policy("/", replace(policy, definition={row.policy_key: []}), is_operator=False)
    assert refused.value.field == f"definition.{row.policy_key}"


@pytest.mark.parametrize(
    ("one", "other", "is_stricter"), [(3, 5, True), (5, 3, False), (3, -1, True), (-1, 3, False), (-1, -1, False)]
)
def test_no_limit_of_deliveries_is_the_least_strict_one(one: int, other: int, *, is_stricter: bool) -> None:
    assert is_fewer(one, other) is is_stricter


def test_the_documentation_has_each_row() -> None:
    assert document() in CONFIGURATION.read_text()
    assert document().count("\n") == len(SUPPORTED) + 2
