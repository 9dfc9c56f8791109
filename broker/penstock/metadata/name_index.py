"""Names in order, for listing them page by page: adding, removing and finding a page cost a search in a list of
buckets and a shift within one bucket, never a sort of everything. It knows nothing of what the names stand for.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

BUCKET_MAX: Final = 1_024
"""A full bucket splits in two. 100,000 names are some 150 buckets; shifting 1,024 pointers takes well below 1 us."""


class NameIndex:
    """A sorted set of names.

    Invariants: no bucket is empty or above BUCKET_MAX; the names of all buckets in turn are strictly ascending;
    `_lasts` holds the last name of each bucket.
    """

    __slots__ = ("_buckets", "_count", "_lasts")

    def __init__(self, names: Iterable[str] = ()) -> None:
        ordered = sorted(set(names))
        half = BUCKET_MAX // 2
        self._buckets = [ordered[start : start + half] for start in range(0, len(ordered), half)]
        self._lasts = [bucket[-1] for bucket in self._buckets]
        self._count = len(ordered)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for bucket in self._buckets:
            yield from bucket

    def add(self, name: str) -> None:
        """The name is not in it yet."""
        if not self._buckets:
            self._buckets.append([name])
            self._lasts.append(name)
        else:
            at = min(bisect_left(self._lasts, name), len(self._buckets) - 1)
            bucket = self._buckets[at]
            insort(bucket, name)
            self._lasts[at] = bucket[-1]
            if len(bucket) > BUCKET_MAX:
                self._split(at)
        self._count += 1

    def remove(self, name: str) -> None:
        """The name is in it."""
        at = bisect_left(self._lasts, name)
        bucket = self._buckets[at]
        place = bisect_left(bucket, name)
        assert bucket[place] == name
        del bucket[place]
        if bucket:
            self._lasts[at] = bucket[-1]
        else:
            del self._buckets[at], self._lasts[at]
        self._count -= 1

    def page(self, after: str | None, limit: int) -> list[str]:
        """The first `limit` names that come after `after`, or from the beginning when that is None. `after` need not
        exist any more."""
        at = 0 if after is None else bisect_right(self._lasts, after)
        if at == len(self._buckets):
            return []
        start = 0 if after is None else bisect_right(self._buckets[at], after)
        names = self._buckets[at][start : start + limit]
        while len(names) < limit and at + 1 < len(self._buckets):
            at += 1
            names += self._buckets[at][: limit - len(names)]
        return names

    def check_invariants(self) -> None:
        names = list(self)
        assert all(0 < len(bucket) <= BUCKET_MAX for bucket in self._buckets)
        assert self._lasts == [bucket[-1] for bucket in self._buckets]
        assert all(one < other for one, other in pairwise(names))
        assert self._count == len(names)

    def _split(self, at: int) -> None:
        bucket = self._buckets[at]
        half = len(bucket) // 2
        self._buckets[at : at + 1] = [bucket[:half], bucket[half:]]
        self._lasts[at : at + 1] = [bucket[half - 1], bucket[-1]]
