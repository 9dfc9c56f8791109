"""Partitions of streams as the broker describes them, and how their rows are counted.

Offsets may have gaps of any width: numbers that a start of the broker skipped, and messages that are gone. So rows are
counted by the runs of offsets that have messages, never by subtracting offsets. Pure: no wire, no clock, no Spark.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from penstock.spark.answers import number, of_known_form, text
from penstock.spark.errors import SparkConnectorError

__all__ = ["Partition", "Runs", "number_of", "parse_partitions", "runs_max"]

# The broker joins runs of a partition, and of an answer, that has more.
RUNS_MAX = 1_000
RUNS_OF_ALL_MAX = 100_000


class Runs:
    """Ascending runs of offsets that have messages; each is a first offset and the one after its last."""

    def __init__(self, runs: Iterable[Sequence[int]]) -> None:
        self._runs = [(start, end) for start, end in runs if start < end]
        self._starts = [start for start, _ in self._runs]
        # Rows below each run, and below the end of all.
        self._below = [0, *accumulate(end - start for start, end in self._runs)]

    @property
    def total(self) -> int:
        return self._below[-1]

    def below(self, offset: int) -> int:
        """Return the number of rows before an offset."""
        at = bisect_right(self._starts, offset) - 1
        if at < 0:
            return 0
        start, end = self._runs[at]
        return self._below[at] + min(offset, end) - start

    def offset_of(self, row: int) -> int:
        """Return the offset of a row, counted from 0; there must be so many."""
        at = bisect_right(self._below, row) - 1
        return self._runs[at][0] + row - self._below[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Runs) and self._runs == other._runs

    def __hash__(self) -> int:
        return hash(tuple(self._runs))

    def __repr__(self) -> str:
        return f"Runs({self._runs})"


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition at a moment: readable from `first` up to `next` (exclusive), archive included.

    `rows` counts all messages ever stored before `next`, also removed ones. No other partition ever has its
    `id`. `bytes` are those of the readable bodies, or -1. `at_timestamp` is the first offset of a time, where asked.
    `is_exact` is False where the broker may have joined runs: they have too many rows then. `archive_error` says why
    rows cannot be read that only an archive has: they are not in `runs`. `missing_count` is the number of partitions
    that its stream was declared with and does not have.
    """

    stream: str
    name: str
    number: int
    id: str
    first: int
    next: int
    rows: int
    bytes: int
    runs: Runs
    at_timestamp: int | None = None
    is_exact: bool = True
    archive_error: str | None = None
    missing_count: int = 0

    def rows_between(self, start: int, end: int) -> int:
        """Return the number of readable rows from `start` up to `end` (exclusive)."""
        return max(0, self.runs.below(end) - self.runs.below(start))

    def rows_before(self, offset: int) -> int:
        """Return the number of rows ever stored before an offset.

        It is exact unless messages above the offset are gone: they count as well then, as far as there were numbers
        for them. An archive may have messages that a broker without power lost and does not count.
        """
        return max(0, min(self.rows - self.runs.total + self.runs.below(offset), offset - 1))

    def bytes_of(self, rows: int) -> int | None:
        """Return about how many bytes so many rows have, by the mean; None where it is unknown."""
        if self.bytes < 0:
            return None
        return rows * self.bytes // max(1, self.runs.total)


def parse_partitions(answer: Any) -> dict[str, Partition]:
    """Return the partitions in an answer of the broker, by name, in its order; raise SparkConnectorError."""
    with of_known_form("DescribeStreams"):
        found: dict[str, Partition] = {}
        places: dict[str, int] = {}
        listed_max = runs_max(len(answer["partitions"]))
        counts = Counter(text(each["stream"]) for each in answer["partitions"])
        for each in answer["partitions"]:
            stream = text(each["stream"])
            place = places[stream] = places.get(stream, -1) + 1
            missing = number(each.get("partition_count", counts[stream])) - counts[stream]
            partition = replace(parsed(each, place, listed_max), missing_count=max(0, missing))
            found.setdefault(partition.name, partition)
        return found


def runs_max(partitions: int) -> int:
    """Return how many runs the broker lists of each of so many partitions: of one with fewer it has joined none."""
    return min(RUNS_MAX, max(1, RUNS_OF_ALL_MAX // max(1, partitions)))


def parsed(found: Mapping[str, Any], place: int, listed_max: int) -> Partition:
    """Return the partition at a place in its stream. Raises KeyError, TypeError or ValueError."""
    stream, name = text(found["stream"]), text(found["partition"])
    at, archive_error = found.get("at_timestamp"), found.get("archive_error")
    partition = Partition(
        stream=stream,
        name=name,
        number=number_of(stream, name, place),
        id=text(found["id"]),
        first=number(found["first"]),
        next=number(found["next"]),
        rows=number(found["rows"]),
        bytes=number(found["bytes"]),
        runs=Runs([(number(start), number(end)) for start, end in found["runs"]]),
        at_timestamp=None if at is None else number(at),
        is_exact=len(found["runs"]) < listed_max,
        archive_error=None if archive_error is None else text(archive_error),
    )
    if not partition.is_exact and partition.runs.total > partition.rows:
        raise SparkConnectorError(
            f"partition '{name}' has more gaps than the broker lists, so its rows cannot be counted; read fewer "
            "partitions in one query, or drop its oldest messages with 'penstock stream trim'"
        )
    return partition


def number_of(stream: str, name: str, place: int = 0) -> int:
    """Return a partition's number in its stream: the one in its name, else its place in the list."""
    digits = name.removeprefix(f"{stream}-")
    return int(digits) if digits != name and digits.isascii() and digits.isdigit() else place
