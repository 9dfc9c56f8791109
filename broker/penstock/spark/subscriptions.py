"""Streams and partitions that a read has, as its options choose them: by name, by a list, a pattern or an assignment.

Pure: no wire, no Spark.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.spark.described import Partition
from penstock.spark.errors import OptionError
from penstock.spark.objects import parse_object

__all__ = ["Subscription", "parse_assignment", "parse_list", "parse_pattern"]


@dataclass(frozen=True, slots=True)
class Subscription:
    """The chosen streams: `names`, or those whose whole name the pattern matches.

    `assigned` has, by stream, the numbers and names of the partitions to read; all where it is None.
    """

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int | str, ...]] | None = None

    def __str__(self) -> str:
        return f"pattern '{self.pattern}'" if self.pattern is not None else ", ".join(self.names)

    def matching(self, streams: Iterable[str]) -> tuple[str, ...]:
        """Return the streams that the pattern matches, sorted."""
        pattern = re.compile(self.pattern or "")
        return tuple(sorted(stream for stream in streams if pattern.fullmatch(stream)))

    def has(self, stream: str, partition: str) -> bool:
        """Return whether a stream is chosen, or the partition by its own name."""
        if self.pattern is not None:
            return bool(self.matching([stream]))
        return stream in self.names or partition in self.names

    def selected(self, there: Mapping[str, Partition], *, may_miss: bool = False) -> dict[str, Partition]:
        """Return the partitions to read; raise OptionError when an assigned one does not exist, unless it may miss."""
        if self.assigned is None:
            return dict(there)
        found = {}
        for stream, wanted in self.assigned.items():
            of_stream = [each for each in there.values() if each.stream == stream]
            for which in wanted:
                each = next((each for each in of_stream if which in (each.number, each.name)), None)
                if each is None and may_miss:
                    continue
                if each is None:
                    names = ", ".join(sorted(each.name for each in of_stream))
                    raise OptionError(f"stream '{stream}' has no partition {which!r}; its partitions are: {names}")
                found[each.name] = each
        return found


def parse_list(value: str) -> Subscription:
    found = tuple(name.strip() for name in value.split(","))
    if not all(found) or len(set(found)) < len(found):
        raise ValueError("it must be names of streams with commas between them, each once")
    return Subscription(names=found)


def parse_pattern(value: str) -> Subscription:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"it must be a regular expression: {error}") from None
    if not value:
        raise ValueError("it must not be empty")
    return Subscription(pattern=value)


def parse_assignment(value: str) -> Subscription:
    """Parse a JSON object that maps streams to lists of their partitions, by number or by name."""
    wanted = 'it must be JSON such as {"events": [0, 2]} or {"events": ["events-0"]}, with some partition of each'
    found = parse_object(value, wanted)
    for stream, partitions in found.items():
        if not stream or not isinstance(partitions, list) or not partitions:
            raise ValueError(wanted)
        if not all(isinstance(each, int | str) and not isinstance(each, bool) for each in partitions):
            raise ValueError(wanted)
    return Subscription(
        names=tuple(found), assigned={stream: tuple(partitions) for stream, partitions in found.items()}
    )
