"""Queues that are declared and deleted under faults, each name once, and what of it has to be there at the end.

A change that was asked for and not answered may have been made or not, or be made later.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

__all__ = ["Declarations"]

Name = tuple[str, str]
"""A virtual host and a queue."""


@dataclass
class Declarations:
    """The names of queues by what was asked and answered."""

    declares_asked: set[Name] = field(default_factory=set)
    declares_answered: set[Name] = field(default_factory=set)
    deletes_asked: set[Name] = field(default_factory=set)
    deletes_answered: set[Name] = field(default_factory=set)
    not_found: list[str] = field(default_factory=list)
    """Queues that a broker did not find after another one had answered their declare."""

    def broken(self, found: AbstractSet[Name]) -> Iterator[str]:
        """Yield what is wrong with the queues that are there at the end."""
        gone = self.declares_answered - self.deletes_asked - found
        back = self.deletes_answered & found
        foreign = found - self.declares_asked
        yield from (f"queue {name} of {vhost} was declared and is gone" for vhost, name in sorted(gone))
        yield from (f"queue {name} of {vhost} was deleted and is back" for vhost, name in sorted(back))
        yield from (f"queue {name} of {vhost} was never declared" for vhost, name in sorted(foreign))
        yield from self.not_found
