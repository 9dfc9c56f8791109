"""Figures and tables of a run: faults with failover times, and verdicts of histories."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.table import Table

from chaos.history import History, Outcome, QueueVerdict

__all__ = ["FaultRecord", "fault_table", "quantile", "verdict_table"]


@dataclass
class FaultRecord:
    """The effect of a fault, or of a replacement, by virtual host: seconds until the next confirm and delivery."""

    kind: str
    hit: dict[str, float] = field(default_factory=dict)
    """Virtual hosts whose leader was hit."""
    other: dict[str, float] = field(default_factory=dict)
    delivered: dict[str, float] = field(default_factory=dict)
    """Until the next delivery in those that were hit."""


def quantile(values: Sequence[float], part: float) -> float:
    """Return the smallest value that is not below this part of them."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def fault_table(records: Iterable[FaultRecord]) -> Table:
    """Return a row for each kind: seconds from the fault until the next confirm, and until the next delivery."""
    columns = ("fault", "count", "p50", "p95", "longest", "of other hosts: p50", "longest")
    table = Table(*columns, "deliveries: p50", "longest", title="seconds until the next confirm")
    by_kind: dict[str, list[FaultRecord]] = {}
    for record in records:
        by_kind.setdefault(record.kind, []).append(record)
    for kind, found in sorted(by_kind.items()):
        hit = [value for record in found for value in record.hit.values()]
        other = [value for record in found for value in record.other.values()]
        delivered = [value for record in found for value in record.delivered.values()]
        table.add_row(
            *(kind, str(len(found))),
            *_texts(hit, (0.5, 0.95, 1.0)),
            *_texts(other, (0.5, 1.0)),
            *_texts(delivered, (0.5, 1.0)),
        )
    return table


def verdict_table(found: Iterable[tuple[str, History, Sequence[QueueVerdict]]]) -> Table:
    """Return a row for each queue."""
    names = ("confirmed", "unknown", "delivered", "redelivered", "lost", "unexpected", "duplicates", "misplaced")
    table = Table("queue", *names, title="histories")
    for vhost, history, verdicts in found:
        confirmed, unknown = (
            sum(producer.count(outcome) for producer in history.producers.values())
            for outcome in (Outcome.CONFIRMED, Outcome.UNKNOWN)
        )
        for each in verdicts:
            counts = (confirmed, unknown, each.delivered, each.redelivered)
            broken = (each.lost, each.unexpected, each.duplicates, each.misplaced)
            table.add_row(
                f"{vhost} {each.queue}", *(f"{count:,}" for count in (*counts, *(one.count for one in broken)))
            )
    return table


def _texts(values: Sequence[float], parts: Sequence[float]) -> list[str]:
    return [f"{quantile(values, part):.2f}" if values else "-" for part in parts]
