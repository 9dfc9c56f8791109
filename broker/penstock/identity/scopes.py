"""Scopes of a token, in RabbitMQ's and LavinMQ's format.

They are `configure:vhost/name` and `write:vhost/name/key`, with `*` for any text in a part, and `tag:name`. A part is
percent-encoded where it has a slash or, as `%2A`, a literal star: stars are found before a part is decoded, as in
RabbitMQ. An unsupported scope grants nothing.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import unquote

from penstock.identity.users import Tag
from penstock.model.records import Access

SCOPES_MAX: Final = 1_000
"""A token has space for a few hundred; more are an attack."""

Pattern = tuple[str, ...]
"""The texts between the stars, at least one: any text matches between two of them."""

ANYTHING: Final[Pattern] = ("", "")

_VARIABLE: Final = re.compile(r"\{([^{}]+)\}")
_ACCESSES: Final = {access.value: access for access in Access}
_TAGS: Final = {tag.value: tag for tag in Tag}


@dataclass(frozen=True, slots=True)
class Grant:
    access: Access
    vhost: Pattern
    name: Pattern
    key: Pattern = ANYTHING


@dataclass(frozen=True, slots=True)
class Scopes:
    """Grants of the scopes of one token."""

    grants: tuple[Grant, ...] = ()
    tags: tuple[Tag, ...] = ()

    @classmethod
    def read(cls, texts: Iterable[str], prefix: str) -> Self:
        """Parse scopes; skip those for other services, which lack the prefix."""
        own = [text.removeprefix(prefix) for text in texts if text.startswith(prefix)][:SCOPES_MAX]
        tags = dict.fromkeys(tag for text in own if (tag := _tag(text)) is not None)
        return cls(tuple(grant for text in own if (grant := _grant(text)) is not None), tuple(tags))

    def variables(self) -> set[str]:
        """Return the names of the variables in its routing keys."""
        return {name for grant in self.grants for text in grant.key for name in _VARIABLE.findall(text)}

    def in_vhost(self, vhost: str, variables: Mapping[str, str] | None = None) -> "ScopedAllowance | None":
        """Return the grants in a vhost; `variables` replace `{name}` in a routing key, besides `{vhost}`."""
        found = tuple(grant for grant in self.grants if matches(grant.vhost, vhost))
        return ScopedAllowance(found, {**(variables or {}), "vhost": vhost}) if found else None


@dataclass(frozen=True, slots=True)
class ScopedAllowance:
    """An `Allowance` by the grants of one vhost."""

    grants: tuple[Grant, ...]
    variables: Mapping[str, str] = field(default_factory=dict)

    def allows(self, access: Access, name: str, _kind: str = "") -> bool:
        """Return whether access is allowed.

        A grant of some routing keys allows the name; keys of topic exchanges are checked apart.
        """
        return any(grant.access is access and matches(grant.name, name) for grant in self.grants)

    def narrows_keys(self, exchange: str) -> bool:
        return all(grant.key != ANYTHING for grant in self._grants(Access.WRITE, exchange))

    def allows_key(self, access: Access, exchange: str, key: str) -> bool:
        return any(self._matches_key(grant.key, key) for grant in self._grants(access, exchange))

    def _grants(self, access: Access, name: str) -> Iterable[Grant]:
        return (grant for grant in self.grants if grant.access is access and matches(grant.name, name))

    def _matches_key(self, pattern: Pattern, key: str) -> bool:
        expanded = expand(pattern, self.variables)
        return expanded is not None and matches(expanded, key)


def expand(pattern: Pattern, variables: Mapping[str, str]) -> Pattern | None:
    """Return the pattern with its variables replaced, unknown ones unchanged.

    Return None when a value has a star, which would be literal here and match any text elsewhere.
    """
    names = [name for text in pattern for name in _VARIABLE.findall(text)]
    if any("*" in variables.get(name, "") for name in names):
        return None
    return tuple(_VARIABLE.sub(lambda found: variables.get(found[1], found[0]), text) for text in pattern)


def pattern_of(part: str) -> Pattern:
    """Return the pattern of a part of a scope: an unencoded `*` matches any text, a `%2A` a star."""
    return tuple(unquote(text) for text in part.split("*"))


def matches(pattern: Pattern, text: str) -> bool:
    """Return whether the pattern matches. Each text matches at its first place, so there is no backtracking."""
    first, last = pattern[0], pattern[-1]
    if len(pattern) == 1:
        return text == first
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for between in pattern[1:-1]:
        at = text.find(between, at, end)
        if at < 0:
            return False
        at += len(between)
    return True


def _tag(text: str) -> Tag | None:
    kind, colon, name = text.partition(":")
    return _TAGS.get(name) if colon and kind == "tag" else None


def _grant(text: str) -> Grant | None:
    """Parse a grant; a third part narrows the routing keys of topic exchanges."""
    kind, colon, rest = text.partition(":")
    parts = [pattern_of(part) for part in rest.split("/")]
    if not colon or kind not in _ACCESSES or len(parts) not in (2, 3):
        return None
    return Grant(_ACCESSES[kind], *parts)
