"""Numeric limits of virtual hosts and users: one row each, and their format in other brokers.

None is no limit, and so is a negative number that is read. To add a limit, write its row. This module does not know
what enforces it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from enum import Enum
from typing import Any, Final

from penstock.model.errors import InvalidArgumentError, Thing

COUNT_MAX: Final = 2**31 - 1
BYTES_MAX: Final = 2**53


class Holder(Enum):
    """The kinds of things that have limits."""

    VHOST = "vhost"
    USER = "user"


_BOTH: Final = frozenset(Holder)
_VHOSTS: Final = frozenset({Holder.VHOST})
_USERS: Final = frozenset({Holder.USER})


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule of a limit: its key in files and definitions, who has it, and its smallest and largest number.

    The key is RabbitMQ's where it has the limit. The least number is 1 where 0 would stop everything without an error.
    `is_flow`: enforced by the listener, where messages move; the others are enforced where things are counted.
    """

    key: str
    holders: frozenset[Holder]
    least: int = 0
    most: int = COUNT_MAX
    is_flow: bool = False


def _row(rule: Rule) -> Any:
    return field(default=None, metadata={"rule": rule})


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a virtual host or a user; rates are per second.

    `streams_max` counts open publish and consume streams, which AMQP calls channels.
    """

    queues_max: int | None = _row(Rule("max-queues", _VHOSTS))
    connections_max: int | None = _row(Rule("max-connections", _BOTH))
    streams_max: int | None = _row(Rule("max-channels", _USERS, is_flow=True))
    publish_rate: int | None = _row(Rule("publish-rate", _BOTH, least=1, is_flow=True))
    publish_bytes_rate: int | None = _row(Rule("publish-bytes-rate", _BOTH, 1, BYTES_MAX, is_flow=True))
    in_flight_bytes_max: int | None = _row(Rule("max-in-flight-bytes", _BOTH, 1, BYTES_MAX, is_flow=True))
    message_bytes_max: int | None = _row(Rule("max-message-bytes", _BOTH, 0, BYTES_MAX, is_flow=True))

    def by_field(self) -> dict[str, int]:
        """Return the limits that are set."""
        return dict(self._set())

    def flow(self) -> dict[str, int]:
        """Return the limits that are set and that the listener enforces."""
        return {name: value for name, value in self._set() if RULES[name].is_flow}

    def written(self) -> dict[str, int]:
        """Return the limits that are set in other brokers' format."""
        return {RULES[name].key: value for name, value in self._set()}

    def _set(self) -> Iterator[tuple[str, int]]:
        return ((name, value) for name in RULES if (value := getattr(self, name)) is not None)


def _rule(each: Field[Any]) -> Rule:
    rule: Rule = each.metadata["rule"]
    return rule


RULES: Final[Mapping[str, Rule]] = {each.name: _rule(each) for each in fields(Limits)}
"""Field -> rule."""

NO_LIMITS: Final = Limits()


def thing_of(holder: Holder, name: str) -> Thing:
    """Return how errors name the limits of a virtual host or a user."""
    return Thing(f"limits of {holder.value}", name)


def read_limits(holder: Holder, name: str, written: Mapping[str, object]) -> Limits:
    """Return limits in other brokers' format. Raises InvalidArgumentError for unsupported ones."""
    thing, rules = thing_of(holder, name), _rules_of(holder)
    _refuse_unknown(thing, written, [rule.key for rule in rules.values()])
    return Limits(**{each: _read(thing, rule, written.get(rule.key)) for each, rule in rules.items()})


def limits_by_field(holder: Holder, name: str, values: Mapping[str, int]) -> Limits:
    """Return limits by their fields, whose numbers `check_limits` checks. Raises InvalidArgumentError."""
    _refuse_unknown(thing_of(holder, name), values, list(_rules_of(holder)))
    return Limits(**values)


def check_limits(holder: Holder, name: str, limits: Limits) -> None:
    """Check limits; raise InvalidArgumentError for an unsupported one or an unsupported number."""
    thing, rules, wanted = thing_of(holder, name), _rules_of(holder), limits.by_field()
    _refuse_unknown(thing, wanted, list(rules))
    for each, value in wanted.items():
        _read(thing, rules[each], value)


def _rules_of(holder: Holder) -> dict[str, Rule]:
    return {name: rule for name, rule in RULES.items() if holder in rule.holders}


def _refuse_unknown(thing: Thing, found: Mapping[str, object], known: list[str]) -> None:
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise InvalidArgumentError(
            thing, f"have '{unknown[0][:64]}', which is unknown", f"set any of {', '.join(known)}"
        )


def _read(thing: Thing, rule: Rule, value: object) -> int | None:
    key, least, most = rule.key, rule.least, rule.most
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value > most:
        raise InvalidArgumentError(
            thing, f"have a '{key}' that is not a number up to {most}", "send a whole number", field=key
        )
    if value < 0:
        return None
    if value < least:
        raise InvalidArgumentError(thing, f"have a '{key}' of {value}", f"send {least} or more", field=key)
    return value
