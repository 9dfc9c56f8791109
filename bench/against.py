"""Compares this checkout with another commit of it.

Their runs alternate, so that other load on the machine affects both. Each row shows both spreads and the ratio of the
medians.

The other commit is built in a worktree under target/, with its own target directory and .venv. This checkout's load
measures both, each with its own broker, client and native load generator. A row that the other commit does not support
fails; name the rows that both have.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median

from rich.table import Table

from bench.report import machine, shown
from bench.rows import Row

ROOT = Path(__file__).resolve().parent.parent
CPU = "broker_cpu_us"
COLUMNS = (
    "case",
    "durability",
    "figure",
    "base: min",
    "median",
    "max",
    "here: min",
    "median",
    "max",
    "ratio",
    "CPU base",
    "CPU here",
)
Runs = list[dict[str, float]]


@dataclass(frozen=True)
class Pair:
    """Runs of one row: of the other commit, and of this checkout."""

    base: Runs
    here: Runs


def built(commit: str, target: str = "release") -> Path:
    """Return the Python of a worktree of that commit, with penstock built in it. Raises CalledProcessError.

    `target` is that of its Makefile: `setup` builds faster, and `release` is for measurements.
    """
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "--verify", f"{commit}^{{commit}}"]
    name = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    tree = ROOT / "target" / f"base-{name}"
    if not tree.exists():
        subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--detach", str(tree), name], check=True)
    # Targets and flags inherited from `make` are this checkout's.
    handed_down = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "CARGO_TARGET_DIR", "VIRTUAL_ENV"}
    environment = {name: value for name, value in os.environ.items() if name not in handed_down}
    # Commits without that target build the release profile by `setup`.
    found = target if f"\n{target}:" in (tree / "Makefile").read_text() else "setup"
    subprocess.run(["make", "-C", str(tree), found], check=True, env=environment)
    python = tree / ".venv" / "bin" / "python"
    # This checkout's load runs there, so it needs what the load imports.
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "--requirement", str(ROOT / "requirements.lock")], check=True, env=environment)
    return python


def alternated(row: Row, base: Path, runs: int, flags: list[str]) -> Pair:
    """Alternate the runs of both, and also which is first."""
    pair = Pair([], [])
    sides = [(base, pair.base), (Path(sys.executable), pair.here)]
    for number in range(runs):
        for python, found in sides if number % 2 == 0 else reversed(sides):
            found.append(once(python, row, flags))
    return pair


def once(python: Path, row: Row, flags: list[str]) -> dict[str, float]:
    """Run a row once in a process of that Python."""
    command = [str(python), "-m", "bench", "--rows", row.key, "--runs", "1", "--json", *flags]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])[row.key][0]
    return figures


def as_table(rows: list[Row], pairs: dict[str, Pair], commit: str) -> Table:
    table = Table(title=f"{commit} and this checkout; {machine()}")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in {"case", "durability", "figure"} else "right")
    for section, members in groupby(rows, lambda row: row.section):
        table.add_row(f"[bold]{section}[/bold]")
        for row in members:
            for cells in lines(row, pairs[row.key]):
                table.add_row(*cells)
            table.add_section()
    return table


def lines(row: Row, pair: Pair) -> list[list[str]]:
    """Return a line of cells per figure, except the processor time, which is in columns of the first."""
    found: list[list[str]] = []
    cpu = [shown(median(run[CPU] for run in runs)) if CPU in runs[0] else "" for runs in (pair.base, pair.here)]
    for figure in row.figures:
        is_missing = any(figure.key not in run for run in (*pair.base, *pair.here))
        if is_missing or (figure.key == CPU and len(row.figures) > 1):
            continue
        spreads = [[run[figure.key] for run in runs] for runs in (pair.base, pair.here)]
        middles = [median(values) for values in spreads]
        ratio = f"{middles[1] / middles[0]:.3f}" if middles[0] else ""
        cells = [shown(value) for values in spreads for value in (min(values), median(values), max(values))]
        first = ["", "", "", ""] if found else [row.title, row.durability, *cpu]
        found.append([*first[:2], f"{figure.key}, {figure.unit}", *cells, ratio, *first[2:]])
    return found
