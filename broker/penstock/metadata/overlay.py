"""Mappings that hold changes over another mapping, which stays as it is.

Making one costs the same however much lies below it, so that a batch of decisions can be tried on a copy of a large
state and dropped.
"""

from collections.abc import Iterator, MutableMapping
from typing import TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")
Inner = TypeVar("Inner")
_ABSENT = object()


class Overlay(MutableMapping[K, V]):
    """Reads fall through to `base`; writes stay here.

    Invariants: `_removed` holds keys of `base` alone; `_added_count` counts the keys of `_written` that are not in
    `base`, or are in `_removed`. A key that is removed and written again comes last, as in a dictionary.
    """

    __slots__ = ("_added_count", "_base", "_removed", "_written")

    def __init__(self, base: MutableMapping[K, V]) -> None:
        self._base = base
        self._written: dict[K, V] = {}
        self._removed: set[K] = set()
        self._added_count = 0

    def __getitem__(self, key: K) -> V:
        if key in self._written:
            return self._written[key]
        if key in self._removed:
            raise KeyError(key)
        return self._base[key]

    @overload
    def get(self, key: K, default: None = None, /) -> V | None: ...
    @overload
    def get(self, key: K, default: D, /) -> V | D: ...
    def get(self, key: K, default: D | None = None, /) -> V | D | None:
        """Return a value. Most keys that rules look up are not there, so this raises nothing on the way."""
        if key in self._written:
            return self._written[key]
        return default if key in self._removed else self._base.get(key, default)

    def __setitem__(self, key: K, value: V) -> None:
        if key not in self._written and not self._is_below(key):
            self._added_count += 1
        self._written[key] = value

    def __delitem__(self, key: K) -> None:
        was_written = self._written.pop(key, _ABSENT) is not _ABSENT
        if self._is_below(key):
            self._removed.add(key)
        elif was_written:
            self._added_count -= 1
        else:
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return key in self._written or (key not in self._removed and key in self._base)

    def __iter__(self) -> Iterator[K]:
        for key in self._base:
            if key not in self._removed:
                yield key
        for key in self._written:
            if not self._is_below(key):
                yield key

    def __len__(self) -> int:
        return len(self._base) - len(self._removed) + self._added_count

    def _is_below(self, key: K) -> bool:
        return key in self._base and key not in self._removed


class NestedOverlay(Overlay[K, MutableMapping[Inner, V]]):
    """An overlay over a mapping of mappings. Change an inner mapping only by what `inner` returns."""

    __slots__ = ()

    def inner(self, key: K) -> MutableMapping[Inner, V]:
        """Return the inner mapping of a key, to be changed. It is made when the key has none."""
        if key not in self._written:
            self[key] = Overlay(self._base[key]) if self._is_below(key) else {}
        return self._written[key]


def inner_of(index: MutableMapping[K, MutableMapping[Inner, V]], key: K) -> MutableMapping[Inner, V]:
    """Return the inner mapping of a key in a dictionary or an overlay, to be changed. It is made when there is none."""
    return index.inner(key) if isinstance(index, NestedOverlay) else index.setdefault(key, {})
