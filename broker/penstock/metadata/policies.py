"""Policies as values: a pattern of names, the settings for matching objects, and the checks of both.

A key that the broker does not support is refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from penstock.metadata.argument_table import BY_POLICY_KEY, PLANNED_POLICY_KEYS, Target
from penstock.model.arguments import Arguments, Value, check_arguments, show
from penstock.model.errors import InvalidArgumentError, Thing
from penstock.model.names import check_name
from penstock.native.patterns import Pattern, compile_pattern

PRIORITY_MIN: Final = -128
PRIORITY_MAX: Final = 127


class ApplyTo(StrEnum):
    """The kinds of things that a policy is for. `queues` are all kinds of queues, streams among them."""

    ALL = "all"
    QUEUES = "queues"
    EXCHANGES = "exchanges"
    CLASSIC_QUEUES = "classic_queues"
    QUORUM_QUEUES = "quorum_queues"
    STREAMS = "streams"


@dataclass(frozen=True, slots=True)
class Policy:
    """`compiled` is made of `pattern`, which may match anywhere in a name, as other brokers' do."""

    name: str
    pattern: str
    definition: Arguments
    apply_to: ApplyTo = ApplyTo.ALL
    priority: int = 0
    compiled: Pattern = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        compiled = compile_pattern("pattern", self.pattern, is_searched=True, owner=Thing("policy", self.name))
        object.__setattr__(self, "compiled", compiled)


Policies = Mapping[str, Policy]


def make_policy(name: str, pattern: str, apply_to: str, priority: int, definition: Mapping[str, object]) -> Policy:
    """From what a file, a document or a client says. Raises InvalidArgumentError; `check_policy` looks at the rest."""
    thing = Thing("policy", name)
    if apply_to not in tuple(ApplyTo):
        raise InvalidArgumentError(
            thing, f"applies to '{apply_to[:64]}'", f"use one of {', '.join(ApplyTo)}", field="apply_to"
        )
    values: dict[str, Value] = {}
    for key, value in definition.items():
        if not isinstance(value, bool | int | float | str | list | dict) and value is not None:
            raise InvalidArgumentError(thing, f"sets '{key}' to no value", "set a text or a number", field=key)
        values[key] = value
    return Policy(name, pattern, values, ApplyTo(apply_to), priority)


def check_policy(vhost: str, policy: Policy, *, is_operator: bool) -> None:
    """Refuses what cannot be honoured, by the name of the key."""
    check_name("policy", policy.name)
    thing = Thing("policy", policy.name, vhost)
    if not policy.name:
        raise InvalidArgumentError(thing, "has an empty name", "choose a name", field="name")
    if not PRIORITY_MIN <= policy.priority <= PRIORITY_MAX:
        raise InvalidArgumentError(
            thing,
            f"has the priority {policy.priority}",
            f"choose one from {PRIORITY_MIN} to {PRIORITY_MAX}",
            field="priority",
        )
    if not policy.definition:
        raise InvalidArgumentError(thing, "sets nothing", f"set some of {', '.join(BY_POLICY_KEY)}", field="definition")
    check_arguments(thing, policy.definition)
    for key, value in policy.definition.items():
        _check_key(thing, key, value, is_operator=is_operator)
        if BY_POLICY_KEY[key].applies_to == {Target.STREAM} and policy.apply_to is not ApplyTo.STREAMS:
            rule = f"sets '{key}' for '{policy.apply_to}', and only streams have it"
            raise InvalidArgumentError(thing, rule, f"let it apply to '{ApplyTo.STREAMS}'", field="apply_to")


def _check_key(thing: Thing, key: str, value: Value, *, is_operator: bool) -> None:
    field = f"definition.{key[:64]}"
    known = BY_POLICY_KEY.get(key)
    if known is None or known.type is None:
        rule = "is not supported yet" if key in PLANNED_POLICY_KEYS else "is unknown"
        raise InvalidArgumentError(
            thing, f"sets '{key[:64]}', which {rule}", f"set only {', '.join(BY_POLICY_KEY)}", field=field
        )
    if is_operator and known.stricter is None:
        allowed = ", ".join(name for name, each in BY_POLICY_KEY.items() if each.stricter is not None)
        raise InvalidArgumentError(
            thing, f"sets '{key}', which is not an operator's", f"set only {allowed}", field=field
        )
    if (value == "" and not known.type.may_be_empty) or not known.type.accepts(value):
        raise InvalidArgumentError(thing, f"sets '{key}' to {show(value)}", known.type.wanted, field=field)
