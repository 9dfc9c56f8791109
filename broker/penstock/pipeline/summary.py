"""Result of a run, and when it has done enough; pure, shared by all runners."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Limits", "Note", "Summary"]

Note = Callable[[str], None]


@dataclass
class Summary:
    """Rows read and non-empty batches of each sink or flow, and seconds without Spark's own start."""

    names: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, name: str, rows: int, batches: int) -> None:
        self.names.append(name)
        self.rows.append(rows)
        self.batches.append(batches)

    @property
    def most(self) -> tuple[int, int]:
        """Return rows and batches of the sink that read most: each reads the whole source, so it stands for the run."""
        return max(zip(self.rows, self.batches, strict=True), default=(0, 0))

    def told(self, name: str) -> str:
        rows, batches = self.most
        sentence = f"pipeline '{name}': {rows:,} rows in {self.seconds:.1f} s ({self.rate(rows):,.0f} rows/s)"
        lines = [
            f"  {each}: {count:,} rows, {self.rate(count):,.0f} rows/s, {number} batches"
            for each, count, number in zip(self.names, self.rows, self.batches, strict=True)
        ]
        return "\n".join([f"{sentence}, {batches} batches", *(lines if len(lines) > 1 else [])])

    def as_fields(self) -> dict[str, Any]:
        return {"names": self.names, "rows": self.rows, "batches": self.batches, "seconds": round(self.seconds, 3)}

    def rate(self, rows: int) -> float:
        return rows / max(self.seconds, 0.001)


@dataclass(frozen=True, slots=True)
class Limits:
    """Number of batches of every sink, or seconds, after which a continuous pipeline ends; None for never."""

    batches: int | None = None
    seconds: float | None = None

    def are_reached(self, batches: list[int], seconds: float) -> bool:
        enough = self.batches is not None and min(batches, default=0) >= self.batches
        return enough or (self.seconds is not None and seconds >= self.seconds)
