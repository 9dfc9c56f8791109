"""Findings of a soak: broken promises (loss, duplicates, wrong order), and figures with their bounds.

It works on the lines that a run wrote, so that a finished run can be analysed again.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.soak_ledger import Ledger
from bench.soak_samples import Sample

__all__ = ["Run", "Settings", "Verdict", "read_run", "rows", "slope"]

SECONDS_PER_HOUR = 3_600
SEGMENTS = 3


@dataclass(frozen=True)
class Settings:
    """The first line of a run."""

    minutes: float
    segment_bytes_max: int
    machine: str


@dataclass(frozen=True)
class Verdict:
    """The last line: counts over all flows. All but the first four must be 0."""

    confirmed: int
    acknowledged: int
    redelivered: int
    visits: int
    lost: int
    duplicates: int
    misplaced: int
    corrupt: int
    left: int
    wrong_visits: int
    failures: int

    @classmethod
    def of(cls, ledgers: Iterable[Ledger], visits: tuple[int, int], left: int, failures: int) -> "Verdict":
        every = list(ledgers)
        sums = {
            name: sum(getattr(ledger, name) for ledger in every)
            for name in ("confirmed", "acknowledged", "redelivered", "lost", "duplicates", "misplaced", "corrupt")
        }
        return cls(**sums, visits=visits[0], wrong_visits=visits[1], left=left, failures=failures)

    @property
    def broken(self) -> dict[str, int]:
        """Return the counts that should be 0 and are not."""
        names = ("lost", "duplicates", "misplaced", "corrupt", "left", "wrong_visits", "failures")
        return {name: value for name, value in asdict(self).items() if name in names and value}


@dataclass(frozen=True)
class Run:
    settings: Settings
    samples: Sequence[Sample]
    verdict: Verdict | None


def read_run(file: Path) -> Run:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    settings = next(Settings(**line["settings"]) for line in lines if "settings" in line)
    verdict = next((Verdict(**line["verdict"]) for line in lines if "verdict" in line), None)
    return Run(settings, [Sample(**line["sample"]) for line in lines if "sample" in line], verdict)


def rows(run: Run) -> list[tuple[str, str, str]]:
    """Return name, value and bound of each figure."""
    samples, settings = run.samples, run.settings
    found = [("duration", f"{samples[-1].at_seconds / 60:.1f} minutes", "")] if samples else []
    if run.verdict is not None:
        found += promises(run.verdict)
    if len(samples) > 3:
        found += figures(samples, settings)
    return found


def promises(verdict: Verdict) -> list[tuple[str, str, str]]:
    return [
        ("confirmed", f"{verdict.confirmed:,}", ""),
        ("acknowledged", f"{verdict.acknowledged:,}", "as many"),
        ("lost", f"{verdict.lost:,}", "0"),
        ("twice after its acknowledgement, or not flagged", f"{verdict.duplicates:,}", "0"),
        ("out of order", f"{verdict.misplaced:,}", "0"),
        ("other bytes than published", f"{verdict.corrupt:,}", "0"),
        ("left in the queues", f"{verdict.left:,}", "0"),
        ("given back and delivered again", f"{verdict.redelivered:,}", ""),
        ("queues declared, used and deleted by visitors", f"{verdict.visits:,}", ""),
        ("of these with a wrong count", f"{verdict.wrong_visits:,}", "0"),
    ]


def figures(samples: Sequence[Sample], settings: Settings) -> list[tuple[str, str, str]]:
    later = samples[len(samples) // 2 :]
    hours = [sample.at_seconds / SECONDS_PER_HOUR for sample in later]
    anonymous = [sample.anonymous_bytes / 1e6 for sample in later]
    spare = SEGMENTS * settings.segment_bytes_max
    excess = max(sample.excess_bytes for sample in samples)
    return [
        ("anonymous memory at the end", f"{anonymous[-1]:.1f} MB", ""),
        ("its slope over the second half", f"{slope(hours, anonymous):+.2f} MB an hour", "about 0"),
        ("mapped file pages, at most", f"{max(sample.mapped_bytes for sample in samples) / 1e6:.1f} MB", ""),
        ("disk use, at most", f"{max(sample.disk_bytes_max for sample in samples) / 1e6:.1f} MB", ""),
        ("above twice what lived then, at most", f"{excess / 1e6:.1f} MB", f"<= {spare / 1e6:.1f} MB, three segments"),
        ("compaction wrote", f"{samples[-1].compacted_bytes / 1e6:.1f} MB", ""),
        *latency("os", [sample.os_us for sample in samples]),
        *latency("disk", [sample.disk_us for sample in samples]),
        ("broker, median", f"{median(sample.broker_cores for sample in samples) * 100:.0f} % of a core", ""),
        ("load, median", f"{median(sample.load_cores for sample in samples) * 100:.0f} % of a core", ""),
        ("load average of the machine, median", f"{median(sample.load_average for sample in samples):.1f}", ""),
        ("descriptors and threads, at most", widest(samples), ""),
    ]


def latency(durability: str, windows: Sequence[dict[str, Any]]) -> list[tuple[str, str, str]]:
    p50, p99 = (median(window[key] for window in windows) / 1e3 for key in ("p50", "p99"))
    longest = max(window["max"] for window in windows) / 1e3
    return [(f"confirm with durability {durability}: p50, p99, longest", f"{p50:.2f}, {p99:.2f}, {longest:.1f} ms", "")]


def widest(samples: Sequence[Sample]) -> str:
    return f"{max(sample.descriptors for sample in samples)}, {max(sample.threads for sample in samples)}"


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the slope of the least-squares line."""
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - x_mean) ** 2 for x in xs)
    return sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread if spread else 0.0
