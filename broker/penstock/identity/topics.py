"""RabbitMQ's topic permissions: the routing keys of a topic exchange that a user may write and bind.

They narrow the vhost's permission; an exchange without one is not narrowed. Variables of a pattern stand for the user's
and the vhost's name, taken literally and never as a part of the expression.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.identity.permissions import Permission
from penstock.model.errors import InvalidArgumentError, Thing
from penstock.model.records import Access
from penstock.native.patterns import Pattern, compile_pattern

VARIABLES: Final = ("{username}", "{vhost}")
_VARIABLE: Final = re.compile("|".join(map(re.escape, VARIABLES)))
_UNKNOWN: Final = "{client_id}"
"""RabbitMQ's third variable is for MQTT, where clients have names of their own."""


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """The patterns as set, for one user in one vhost, and compiled by their sources."""

    write: str
    read: str
    _names: tuple[str, str] = field(repr=False, compare=False)
    _compiled: dict[str, Pattern] = field(repr=False, compare=False)

    @classmethod
    def compile(cls, user: str, vhost: str, write: str, read: str) -> "TopicPermission":
        """Compile the patterns. Raises InvalidArgumentError naming the invalid one."""
        topic = cls.checked(user, vhost, write, read)
        for access in (Access.WRITE, Access.READ):
            topic._pattern(access)
        return topic

    @classmethod
    def checked(cls, user: str, vhost: str, write: str, read: str) -> "TopicPermission":
        """Return the permission for patterns that `compile` accepted before: each is compiled again when first used.

        An import checks all of its entries before it adds the first, and compiling is nearly all of its time.
        """
        return cls(write, read, (user, vhost), {})

    def allows(self, access: Access, key: str) -> bool:
        """Return whether a routing key may be written by a message, or read by a binding."""
        return self._pattern(access).matches(key)

    def _pattern(self, access: Access) -> Pattern:
        source = self.write if access is Access.WRITE else self.read
        pattern = self._compiled.get(source)
        if pattern is None:
            pattern = self._compiled[source] = _compiled(access, source, *self._names)
        return pattern


@dataclass(frozen=True, slots=True)
class NarrowedPermission:
    """An `Allowance`: a permission, narrowed per exchange."""

    permission: Permission
    topics: Mapping[str, TopicPermission]

    def allows(self, access: Access, name: str, kind: str = "") -> bool:
        return self.permission.allows(access, name, kind)

    def narrows_keys(self, exchange: str) -> bool:
        return exchange in self.topics

    def allows_key(self, access: Access, exchange: str, key: str) -> bool:
        topic = self.topics.get(exchange)
        return topic is None or topic.allows(access, key)


def _compiled(access: Access, source: str, user: str, vhost: str) -> Pattern:
    if _UNKNOWN in source:
        raise InvalidArgumentError(
            Thing("pattern", source),
            f"has the variable {_UNKNOWN}, which has no value here",
            f"use {' or '.join(VARIABLES)}",
            field=access.value,
        )
    names = dict(zip(VARIABLES, (user, vhost), strict=True))
    expanded = _VARIABLE.sub(lambda found: re.escape(names[found[0]]), source)
    return compile_pattern(access.value, expanded, shown=source)
