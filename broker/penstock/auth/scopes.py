"""The scopes of a token, as RabbitMQ and LavinMQ write them: `configure:vhost/name`, with `*` for anything in either
part, percent-encoded where a part holds a slash, and `tag:name`. What cannot be honoured grants nothing."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import unquote

from penstock.auth.users import Tag
from penstock.model.records import Access

SCOPES_MAX: Final = 1_000
"""A token has room for a few hundred; more are no scopes but an attack."""

_ACCESSES: Final = {access.value: access for access in Access}
_TAGS: Final = {tag.value: tag for tag in Tag}


@dataclass(frozen=True, slots=True)
class Grant:
    access: Access
    vhost: str
    name: str


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

    def in_vhost(self, vhost: str) -> "ScopedAllowance | None":
        found = tuple(grant for grant in self.grants if matches(grant.vhost, vhost))
        return ScopedAllowance(found) if found else None


@dataclass(frozen=True, slots=True)
class ScopedAllowance:
    """Implements `Allowance` with the grants of one vhost."""

    grants: tuple[Grant, ...]

    def allows(self, access: Access, name: str, _kind: str = "") -> bool:
        return any(grant.access is access and matches(grant.name, name) for grant in self.grants)


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
    """A third part narrows the routing keys. Nobody checks those here, so only one that allows all of them counts."""
    kind, colon, rest = text.partition(":")
    parts = [unquote(part) for part in rest.split("/")]
    if not colon or kind not in _ACCESSES or len(parts) not in (2, 3) or parts[2:] not in ([], ["*"]):
        return None
    return Grant(_ACCESSES[kind], parts[0], parts[1])
