"""A user's permission in one vhost: three patterns that must match a resource's whole name.

A pattern is compiled once, when it is set; an empty one matches only the empty name.
"""

from dataclasses import dataclass
from typing import Self

from penstock.model.records import Access
from penstock.native.patterns import Pattern, compile_pattern

_EVERYTHING = frozenset({".*", "^.*", ".*$"})


@dataclass(frozen=True, slots=True)
class Permission:
    """A compiled permission; `pattern(access)` returns the source."""

    configure: Pattern
    write: Pattern
    read: Pattern

    @classmethod
    def compile(cls, configure: str, write: str, read: str) -> Self:
        """Compile the patterns. Raises InvalidArgumentError naming the invalid one."""
        return cls(
            compile_pattern("configure", configure), compile_pattern("write", write), compile_pattern("read", read)
        )

    def allows(self, access: Access, name: str, _kind: str = "") -> bool:
        return self._of(access).matches(name)

    def narrows_keys(self, _exchange: str) -> bool:
        return False

    def allows_key(self, _access: Access, _exchange: str, _key: str) -> bool:
        return True

    def pattern(self, access: Access) -> str:
        return self._of(access).source

    def _of(self, access: Access) -> Pattern:
        if access is Access.WRITE:
            return self.write
        return self.read if access is Access.READ else self.configure


def whole_pattern(source: str) -> str:
    """Return a whole-name pattern for another broker's unanchored one.

    Its empty pattern matches nothing, as ours does.
    """
    inner = source.removeprefix("^")
    is_anchored = inner != source and source.endswith("$") and not source.endswith("\\$") and "|" not in source
    if is_anchored:
        return inner[:-1]
    if not source or source in _EVERYTHING:
        return ".*" if source else ""
    return f".*(?:{source}).*"
