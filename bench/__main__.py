"""Measures every row of the table several times and prints least, median and greatest.

It writes only temporary data directories, unless --update-docs asks for docs/benchmarks.md.
"""

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import against
from bench.amqp_rows import AMQP_ROWS
from bench.flight_rows import FLIGHT_ROWS
from bench.lock_rows import LOCK_ROWS
from bench.measure import Runner
from bench.report import as_markdown, as_table, check_marks, update_docs
from bench.rows import ROWS, Row
from bench.spark_rows import SPARK_ROWS, is_spark_there
from bench.storage_rows import STORAGE_ROWS
from bench.stream_rows import STREAM_ROWS
from bench.tls_rows import TLS_ROWS

ALL_ROWS = (*ROWS, *TLS_ROWS, *AMQP_ROWS, *STORAGE_ROWS, *LOCK_ROWS, *STREAM_ROWS, *FLIGHT_ROWS, *SPARK_ROWS)
PIPE_WIDTH = 220
DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"


def main() -> int:
    options = parse(sys.argv[1:])
    if options.json:
        print(json.dumps({row.key: measured(row, options) for row in ALL_ROWS if row.key in (options.rows or ())}))
        return 0
    # A pipe has no width of its own, and the table is wide.
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    chosen = [row for row in ALL_ROWS if not options.rows or row.key in options.rows]
    if not is_spark_there() and any(row in SPARK_ROWS for row in chosen):
        console.print("[dim]PySpark is not here: its rows are left out; make bench-streams installs it[/dim]")
        chosen = [row for row in chosen if row not in SPARK_ROWS]
    if options.base:
        # They are compared with Spark's own sources in the same run; the other commit's environment has no PySpark.
        console.print(compared([row for row in chosen if row not in SPARK_ROWS], options, console))
        return 0
    if options.update_docs:
        check_marks(DOCUMENT)  # before an hour of measuring
    results: dict[str, list[dict[str, float]]] = {}
    for row in chosen:
        console.print(f"[dim]{row.key}: {row.title}, durability {row.durability}, {options.runs} runs[/dim]")
        results[row.key] = measured(row, options)
    console.print(as_table(chosen, results))
    if options.update_docs:
        update_docs(DOCUMENT, as_markdown(chosen, results, "make bench-docs"))
        console.print(f"wrote {DOCUMENT.name}")
    return 0


def compared(rows: list[Row], options: argparse.Namespace, console: Console) -> Table:
    """Return the rows of both commits, with alternating runs."""
    python = against.built(options.base)
    flags = [f"--{name}={getattr(options, name)}" for name in ("seconds", "backlog", "queues", "directory")]
    pairs = {}
    for row in rows:
        console.print(f"[dim]{row.key}: {row.title}, durability {row.durability}, {options.runs} runs of each[/dim]")
        pairs[row.key] = against.alternated(row, python, options.runs, flags)
    return against.as_table(rows, pairs, options.base)


def measured(row: Row, options: argparse.Namespace) -> list[dict[str, float]]:
    runner = Runner(options.directory, options.seconds, options.backlog, options.queues)
    return [runner.run(row) for _ in range(options.runs)]


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="how often each row is measured")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long a run lasts")
    parser.add_argument(
        "--rows", nargs="*", metavar="KEY", help="only these: " + ", ".join(row.key for row in ALL_ROWS)
    )
    parser.add_argument("--backlog", type=int, default=10_000_000, help="messages of the row backlog")
    parser.add_argument("--queues", type=int, default=100_000, help="queues of the row queues")
    parser.add_argument(
        "--directory", type=Path, default=Path("target/bench"), help="where the brokers keep their data"
    )
    parser.add_argument(
        "--update-docs", action="store_true", help="write docs/benchmarks.md; without it nothing is written"
    )
    parser.add_argument("--base", metavar="COMMIT", help="measure this commit too, run by run in turn, and compare")
    parser.add_argument("--json", action="store_true", help="print the figures of the named rows as JSON, nothing else")
    options = parser.parse_args(arguments)
    unknown = set(options.rows or []) - {row.key for row in ALL_ROWS}
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
