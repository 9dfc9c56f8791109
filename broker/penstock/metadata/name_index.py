"""Names in order, for listing them page by page without sorting all of them."""

from collections.abc import Iterable, Iterator
from itertools import islice

from sortedcontainers import SortedSet


class NameIndex:
    """A sorted set of names; it does not know what they stand for."""

    __slots__ = ("_names",)

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = SortedSet(names)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def add(self, name: str) -> None:
        self._names.add(name)

    def remove(self, name: str) -> None:
        """Remove a name that is in the index."""
        self._names.remove(name)

    def page(self, after: str | None, limit: int) -> list[str]:
        """Return the first `limit` names after `after`, which need not exist; None is the beginning."""
        return list(islice(self._names.irange(after, None, inclusive=(False, True)), limit))
