"""The scopes of a token, as RabbitMQ and LavinMQ write them: `configure:vhost/name` and `write:vhost/name/key`, with
`*` for anything in a part, percent-encoded where a part holds a slash, and `tag:name`. What cannot be honoured grants
nothing."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import unquote

from penstock.identity.users import Tag
from penstock.model.records import Access

SCOPES_MAX: Final = 1_000
"""A token has room for a few hundred; more are no scopes but an attack."""

_VARIABLE: Final = re.compile(r"\{([^{}]+)\}")
_ACCESSES: Final = {access.value: access for access in Access}
_TAGS: Final = {tag.value: tag for tag in Tag}


@dataclass(frozen=True, slots=True)
class Grant:
    access: Access
    vhost: str
    name: str
    key: str = "*"


@dataclass(frozen=True, slots=True)
class Scopes:
    """What the scopes of one token grant."""

    grants: tuple[Grant, ...] = ()
    tags: tuple[Tag, ...] = ()

    @classmethod
    def read(cls, texts: Iterable[str], prefix: str) -> Self:
        """Scopes without the prefix are for others and passed over."""
        own = [text.removeprefix(prefix) for text in texts if text.startswith(prefix)][:SCOPES_MAX]
        tags = dict.fromkeys(tag for text in own if (tag := _tag(text)) is not None)
        return cls(tuple(grant for text in own if (grant := _grant(text)) is not None), tuple(tags))

    def variables(self) -> set[str]:
        """The names of those that its routing keys have."""
        return {name for grant in self.grants for name in _VARIABLE.findall(grant.key)}

    def in_vhost(self, vhost: str, variables: Mapping[str, str] | None = None) -> "ScopedAllowance | None":
        """`variables` are what `{name}` stands for in a routing key, besides `{vhost}`."""
        found = tuple(grant for grant in self.grants if matches(grant.vhost, vhost))
        return ScopedAllowance(found, {**(variables or {}), "vhost": vhost}) if found else None


@dataclass(frozen=True, slots=True)
class ScopedAllowance:
    """Implements `Allowance` with the grants of one vhost."""

    grants: tuple[Grant, ...]
    variables: Mapping[str, str] = field(default_factory=dict)

    def allows(self, access: Access, name: str, _kind: str = "") -> bool:
        """A grant of some routing keys opens the name: which keys is asked besides, and of topic exchanges alone."""
        return any(grant.access is access and matches(grant.name, name) for grant in self.grants)

    def narrows_keys(self, exchange: str) -> bool:
        return all(grant.key != "*" for grant in self._grants(Access.WRITE, exchange))

    def allows_key(self, access: Access, exchange: str, key: str) -> bool:
        return any(self._matches_key(grant.key, key) for grant in self._grants(access, exchange))

    def _grants(self, access: Access, name: str) -> Iterable[Grant]:
        return (grant for grant in self.grants if grant.access is access and matches(grant.name, name))

    def _matches_key(self, pattern: str, key: str) -> bool:
        expanded = expand(pattern, self.variables)
        return expanded is not None and matches(expanded, key)


def expand(pattern: str, variables: Mapping[str, str]) -> str | None:
    """None when a value holds a star, which would stand for anything. A variable that nobody knows stays as it is."""
    values = [variables.get(name) for name in _VARIABLE.findall(pattern)]
    if any(value is not None and "*" in value for value in values):
        return None
    return _VARIABLE.sub(lambda found: variables.get(found[1], found[0]), pattern)


def matches(pattern: str, text: str) -> bool:
    """`*` stands for any text, also none. Takes time by the product of the lengths at most, whatever the pattern."""
    at, place = 0, 0
    star, star_place = -1, 0
    while place < len(text):
        if at < len(pattern) and pattern[at] == "*":
            star, star_place = at, place
            at += 1
        elif at < len(pattern) and pattern[at] == text[place]:
            at, place = at + 1, place + 1
        elif star >= 0:
            star_place += 1
            at, place = star + 1, star_place
        else:
            return False
    return not pattern[at:].strip("*")


def _tag(text: str) -> Tag | None:
    kind, colon, name = text.partition(":")
    return _TAGS.get(name) if colon and kind == "tag" else None


def _grant(text: str) -> Grant | None:
    """A third part narrows the routing keys of topic exchanges."""
    kind, colon, rest = text.partition(":")
    parts = [unquote(part) for part in rest.split("/")]
    if not colon or kind not in _ACCESSES or len(parts) not in (2, 3):
        return None
    return Grant(_ACCESSES[kind], *parts)
