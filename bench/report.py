"""The table, for a terminal and for docs/benchmarks.md: least, median and greatest of each figure."""

import os
import platform
from itertools import groupby
from pathlib import Path
from statistics import median

from rich.table import Table

from bench.peers import peer
from bench.rows import Figure, Row

Results = dict[str, list[dict[str, float]]]

BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
MARKS = (BEGIN, END)
CLUSTER_MARKS = ("<!-- clusters: begin -->", "<!-- clusters: end -->")
COLUMNS = ("case", "durability", "figure", "min", "median", "max", "wanted", "reached", "peer")


def as_table(rows: list[Row], results: Results) -> Table:
    table = Table(title=machine())
    for column in COLUMNS:
        table.add_column(column, justify="right" if column in {"min", "median", "max", "wanted"} else "left")
    for section, members in groupby(rows, lambda row: row.section):
        table.add_row(f"[bold]{section}[/bold]")
        for row in members:
            for cells in lines(row, results[row.key]):
                table.add_row(*cells)
            table.add_section()
    return table


def as_markdown(rows: list[Row], results: Results, command: str, note: str = "") -> str:
    runs = len(next(iter(results.values())))
    head = f"Measured by `{command}`, {runs} runs of each row{note}, on {machine()}.\n\n"
    parts = []
    for section, members in groupby(rows, lambda row: row.section):
        table = [f"## {section}", "", "| " + " | ".join(COLUMNS) + " |", "|---|---|---|--:|--:|--:|--:|---|---|"]
        table += ["| " + " | ".join(cells) + " |" for row in members for cells in lines(row, results[row.key])]
        parts.append("\n".join(table) + "\n")
    return head + "\n".join(parts)


def lines(row: Row, runs: list[dict[str, float]]) -> list[list[str]]:
    """Return one line of cells for each figure; shared cells are in the first."""
    found = []
    # A peer that is not installed has no figures.
    measured = [figure for figure in row.figures if all(figure.key in run for run in runs)]
    for number, figure in enumerate(measured):
        values = [run[figure.key] for run in runs]
        least, middle, greatest = min(values), median(values), max(values)
        first = [row.title, row.durability] if number == 0 else ["", ""]
        spread = [shown(value) for value in (least, middle, greatest)]
        judged = [wanted(figure), reached(figure, middle), peer(row.key, figure.key)]
        found.append([*first, f"{figure.key}, {figure.unit}", *spread, *judged])
    return found


def wanted(figure: Figure) -> str:
    if figure.target is None:
        return ""
    return ("<= " if figure.lower_is_better else ">= ") + shown(figure.target)


def reached(figure: Figure, value: float) -> str:
    if figure.target is None:
        return ""
    return "yes" if figure.is_reached(value) else "**no**"


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def machine() -> str:
    """Return the processor, its cores and the system, from /proc."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    system = f"Linux {platform.release().partition('-')[0]}, Python {platform.python_version()}"
    return f"{model}, {os.cpu_count()} cores, {system}"


def check_marks(document: Path, marks: tuple[str, str] = MARKS) -> None:
    """Raise ValueError unless the document has one table between marks: others would stay as they are."""
    text, (first, last) = document.read_text(), marks
    begin, end = text.count(first), text.count(last)
    if (begin, end) != (1, 1) or text.index(first) > text.index(last):
        raise ValueError(
            f"{document.name} has {begin} marks '{first}' and {end} marks '{last}'; keep one of each, in this order"
        )


def update_docs(document: Path, text: str, marks: tuple[str, str] = MARKS) -> None:
    """Replace the text between the two marks."""
    check_marks(document, marks)
    before, _, rest = document.read_text().partition(marks[0])
    _, _, after = rest.partition(marks[1])
    document.write_text(f"{before}{marks[0]}\n{text}{marks[1]}{after}")
