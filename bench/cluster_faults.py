"""Rows about leaders that die, stand still or are cut off under load: the tests with faults, and their times."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console

from bench.cluster_rows import SECTION, folder
from bench.measure import Load
from bench.rows import Figure, Row, most
from chaos.fault_script import Surroundings, run_faults
from chaos.faults import Kind, Pace
from chaos.report import quantile
from chaos.run import Findings, Plan

__all__ = ["FaultSetting", "fault_rows"]

SEED: Final = 1
SECONDS_MAX: Final = 3_600.0
RATE: Final = 500.0
"""Messages a second of each of six publishers."""
DEAD: Final = Pace((1.5, 2.5))
SILENT: Final = Pace((6.0, 7.0))
"""Longer than the time for which a leader is missed, and than the promise."""


@dataclass(frozen=True, slots=True)
class FaultSetting:
    """The network, and how many faults of each kind there are."""

    network: Surroundings
    can_cut: bool
    count: int
    cut_count: int
    console: Console


def fault_rows(setting: FaultSetting) -> tuple[Row, ...]:
    """Return the rows that this machine can measure: a cable is cut in network namespaces only."""
    rows = [
        _row("cluster-kill", "a leader is killed under load", setting, (Kind.KILL_LEADER, DEAD, setting.count), 1.5),
        _row("cluster-pause", "a leader gets SIGSTOP under load", setting, (Kind.PAUSE, SILENT, setting.count), 5.0),
    ]
    if setting.can_cut and setting.cut_count:
        cut = (Kind.HALVES, SILENT, setting.cut_count)
        rows.append(_row("cluster-cut", "a leader is cut off under load", setting, cut, 5.0))
    return tuple(rows)


def _row(key: str, title: str, setting: FaultSetting, fault: tuple[Kind, Pace, int], wanted: float) -> Row:
    figures = (
        Figure("faults", "faults"),
        most("confirm_p50", "s"),
        most("confirm_p95", "s", wanted),
        most("confirm_longest", "s"),
        most("deliver_p50", "s"),
        most("deliver_longest", "s"),
    )
    return Row(
        key,
        f"{title}: until the next confirm, and the next delivery",
        figures,
        _measure(setting, *fault),
        "replicated",
        SECTION,
    )


def _measure(setting: FaultSetting, kind: Kind, pace: Pace, count: int) -> Callable[[Load], dict[str, float]]:
    def measure(load: Load) -> dict[str, float]:
        plan = Plan(SEED, SECONDS_MAX, [kind], RATE, folder(load) / "chaos", count, pace=pace)
        return _times(run_faults(plan, setting.network, setting.console))

    return measure


def _times(found: Findings) -> dict[str, float]:
    if found.wrong:
        raise RuntimeError(f"a promise was broken, so the times are worthless: {'; '.join(found.wrong)}")
    confirmed = [value for record in found.records for value in record.hit.values()]
    delivered = [value for record in found.records for value in record.delivered.values()]
    return {"faults": float(len(found.records))} | _quantiles("confirm", confirmed) | _quantiles("deliver", delivered)


def _quantiles(name: str, values: Sequence[float]) -> dict[str, float]:
    parts = {"p50": 0.5, "p95": 0.95, "longest": 1.0}
    return {f"{name}_{part}": quantile(values, at) for part, at in parts.items()}
