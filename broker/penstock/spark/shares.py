"""Shares of a batch: how many rows of each partition it has, and in how many tasks they are read.

Limits count rows, by the runs of offsets that have messages. Pure: no wire, no clock, no Spark.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from penstock.spark.described import Partition

__all__ = ["SIZE_SPLITS_MAX", "SPLITS_MAX", "SPLIT_BYTES", "SPLIT_ROWS", "Limits", "admitted", "parts_of"]

SPLITS_MAX = 4_096
# A task reads about so much, unless the options ask for more tasks: a second's work, above the cost of starting it.
SPLIT_BYTES = 64 * 2**20
SPLIT_ROWS = 1_000_000
# So many tasks a batch at most by these sizes: each may publish under a name of its own, and a user has 4,096 of them.
SIZE_SPLITS_MAX = 512


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a batch; None for no limit. A row more than `rows_max` for each partition that would get none."""

    rows_max: int | None = None
    bytes_max: int | None = None
    splits_min: int = 1
    split_rows_max: int | None = None


def admitted(behind: Mapping[str, int], there: Mapping[str, Partition], limits: Limits) -> dict[str, int]:
    """Return how many rows of each partition are read: its share by its backlog, at least one where it has any.

    With less than one row, a partition could wait for ever.
    """
    rows = dict(behind)
    if limits.bytes_max is not None:
        rows = shared(rows, {name: size_of(there[name]) for name in rows}, limits.bytes_max)
    rows_max = limits.rows_max
    if limits.split_rows_max is not None:
        # So that the tasks of a batch are never too many.
        rows_max = min(rows_max or 2**63, limits.split_rows_max * SPLITS_MAX)
    return rows if rows_max is None else shared(rows, dict.fromkeys(rows, Fraction(1)), rows_max)


def size_of(partition: Partition) -> Fraction:
    """Return the mean size of a row; one byte where it is unknown."""
    return Fraction(1) if partition.bytes < 0 else Fraction(partition.bytes, max(1, partition.runs.total))


def shared(rows: Mapping[str, int], sizes: Mapping[str, Fraction], size_max: int) -> dict[str, int]:
    """Return as many rows of each as have this size together: one of each that has any, and of the rest its share."""
    ones = sum((sizes[name] for name, count in rows.items() if count), Fraction(0))
    total = sum((sizes[name] * count for name, count in rows.items()), Fraction(0))
    if total <= size_max:
        return dict(rows)
    # Some partition has more than one row, or there is no room beside the ones.
    part = max(Fraction(0), size_max - ones) / (total - ones) if total > ones else Fraction(0)
    return {name: 1 + int((count - 1) * part) if count else 0 for name, count in rows.items()}


def parts_of(rows: Mapping[str, int], there: Mapping[str, Partition], limits: Limits) -> dict[str, int]:
    """Return into how many parts each partition's rows are split, none of them empty.

    Parts that only the sizes ask for are fewer where a batch would have too many.
    """
    total = max(1, sum(rows.values()))
    rows_max = limits.split_rows_max or total
    asked = {name: max(-(-limits.splits_min * count // total), -(-count // rows_max)) for name, count in rows.items()}
    asked = {name: min(rows[name], parts) for name, parts in asked.items()}
    more = {name: max(0, parts - asked[name]) for name, parts in parts_by_size(rows, there).items()}
    room, wanted = max(0, SPLITS_MAX - sum(asked.values())), max(1, sum(more.values()))
    return {name: parts + min(more[name], more[name] * room // wanted) for name, parts in asked.items()}


def parts_by_size(rows: Mapping[str, int], there: Mapping[str, Partition]) -> dict[str, int]:
    """Return into how many parts each partition's rows are split so that no task is large."""
    sizes = {name: there[name].bytes_of(count) or 0 for name, count in rows.items()}
    bytes_each = max(SPLIT_BYTES, -(-sum(sizes.values()) // SIZE_SPLITS_MAX))
    rows_each = max(SPLIT_ROWS, -(-sum(rows.values()) // SIZE_SPLITS_MAX))
    return {
        name: min(count, max(-(-count // rows_each), -(-sizes[name] // bytes_each))) for name, count in rows.items()
    }
