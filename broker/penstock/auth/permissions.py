"""A user's permission in one vhost: three patterns that must match a resource's whole name. A pattern is compiled once,
when it is set; an empty one matches nothing but the empty name."""

import re
from dataclasses import dataclass
from typing import Self

from penstock.model.errors import InvalidArgumentError, Thing, TooLargeError
from penstock.model.records import Access

_EVERYTHING = frozenset({".*", "^.*", ".*$"})
PATTERN_LENGTH_MAX = 1_024  # longer ones are refused: nobody can read them, and compiling them costs


@dataclass(frozen=True, slots=True)
class Permission:
    """Compiled; `pattern(access)` gives back the source."""

    configure: re.Pattern[str]
    write: re.Pattern[str]
    read: re.Pattern[str]

    @classmethod
    def compile(cls, configure: str, write: str, read: str) -> Self:
        """Raises InvalidArgumentError naming the pattern that is none."""
        return cls(_compiled("configure", configure), _compiled("write", write), _compiled("read", read))

    def allows(self, access: Access, name: str, _kind: str = "") -> bool:
        return self._of(access).fullmatch(name) is not None

    def pattern(self, access: Access) -> str:
        return self._of(access).pattern

    def _of(self, access: Access) -> re.Pattern[str]:
        if access is Access.WRITE:
            return self.write
        return self.read if access is Access.READ else self.configure


def whole_pattern(source: str) -> str:
    """The pattern that matches a whole name where another broker's finds itself anywhere in one: theirs are unanchored.
    Their empty pattern matches nothing, as ours does."""
    inner = source.removeprefix("^")
    is_anchored = inner != source and source.endswith("$") and not source.endswith("\\$") and "|" not in source
    if is_anchored:
        return inner[:-1]
    if not source or source in _EVERYTHING:
        return ".*" if source else ""
    return f".*(?:{source}).*"


def _compiled(kind: str, source: str) -> re.Pattern[str]:
    if len(source) > PATTERN_LENGTH_MAX:
        raise TooLargeError(
            Thing("pattern", kind), f"is {len(source)} characters long", size=len(source), size_max=PATTERN_LENGTH_MAX
        )
    try:
        return re.compile(source)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidArgumentError(
            Thing("pattern", source), f"is no regular expression: {error}", "mend it", field=kind
        ) from error
