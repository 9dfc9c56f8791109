"""How many rows each partition of a query is behind, from the offsets that Spark reports after each micro-batch.

Offsets count the rows before them, so the lag is a difference of rows and not of offsets, which may have gaps. Pure:
no Spark, no log, no metrics.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.spark.positions import VERSION, Positions, parse_offset

__all__ = ["PartitionLag", "described", "lags_of"]

# A log line names so many partitions, those with most rows first.
NAMED_MAX = 10


@dataclass(frozen=True, slots=True, order=True)
class PartitionLag:
    """Rows of a partition that were stored when the batch was planned, and that the query has not processed."""

    stream: str
    partition: str
    rows: int


def lags_of(sources: Iterable[tuple[str | None, str | None]]) -> list[PartitionLag]:
    """Return the lag of each partition from the end offset and the latest offset of each source of a query.

    Sources of other formats are left out, and so are partitions that the query has not begun or that were declared
    again: the next batch says what becomes of them. A partition that two sources read has the lag of the slower one.
    """
    found: dict[tuple[str, str], int] = {}
    for end, latest in sources:
        done, there = positions_of(end), positions_of(latest)
        for name, at in there.items():
            reached = done.get(name)
            if reached is not None and reached.id == at.id:
                which = (at.stream, name)
                found[which] = max(found.get(which, 0), at.rows - reached.rows)
    return [PartitionLag(*which, rows) for which, rows in sorted(found.items())]


def positions_of(offset: str | None) -> Positions:
    """Return the positions of an offset of ours, and nothing for another source's."""
    try:
        parsed: Any = json.loads(offset or "null")
    except ValueError:
        return {}
    if not isinstance(parsed, dict) or parsed.get("version") != VERSION or "partitions" not in parsed:
        return {}
    return parse_offset(parsed)


def described(lags: Iterable[PartitionLag]) -> str:
    """Return one line: the sum, and the partitions that are most behind."""
    lags = list(lags)
    behind = sorted((lag for lag in lags if lag.rows), key=lambda lag: -lag.rows)
    named = ", ".join(f"{lag.partition} {lag.rows:,}" for lag in behind[:NAMED_MAX])
    more = f" and {len(behind) - NAMED_MAX} more" if len(behind) > NAMED_MAX else ""
    total = sum(lag.rows for lag in lags)
    where = "1 partition" if len(lags) == 1 else f"{len(lags)} partitions"
    return f"{total:,} rows behind in {where}{': ' if named else ''}{named}{more}"
