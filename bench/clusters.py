"""Measures a cluster of three brokers on this machine, and prints least, median and greatest: `make bench-cluster`.

Rows with rates are measured several times. Rows with faults, hand-overs and copies are measured once, over several of
them. Other brokers are measured beside it in the same run where they are installed. It writes only temporary data
directories, unless --update-docs asks for docs/benchmarks.md.
"""

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console

from bench import nats, rabbitmq
from bench.cluster_catch_up import catch_up_row
from bench.cluster_faults import FaultSetting, fault_rows
from bench.cluster_moves import hand_over_row
from bench.cluster_rows import CLUSTER_ROWS, PEER_ROWS
from bench.measure import Runner
from bench.report import CLUSTER_MARKS, Results, as_markdown, as_table, check_marks, update_docs
from bench.rows import Row
from chaos.network import Loopback, Network, enter_own_network
from support.serving_cluster import NAMES

DOCUMENT: Final = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
PIPE_WIDTH: Final = 220


def main() -> int:
    options = parse(sys.argv[1:])
    # A shell has its background jobs ignore it, as would the loads that they start, which are ended by it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)
    if options.update_docs:
        check_marks(DOCUMENT, CLUSTER_MARKS)  # before minutes of measuring
    has_network = enter_own_network()
    load_before = os.getloadavg()[1]
    console.print(*peers(), sep="\n")
    with Network(NAMES) if has_network else Loopback(NAMES) as network:
        setting = FaultSetting(network, has_network, options.faults, options.cuts, console)
        once = (*fault_rows(setting), hand_over_row(options.moves), catch_up_row(options.gigabytes))
        rows = [row for row in (*CLUSTER_ROWS, *once, *PEER_ROWS) if not options.rows or row.key in options.rows]
        results: Results = {}
        for row in rows:
            results[row.key] = measured(row, options, console, 1 if row in once else options.runs)
    console.print(as_table(rows, results))
    if options.update_docs:
        note = f" (of those with faults, hand-overs or a copy one), at a load average of {load_before:.1f} before"
        text = as_markdown(rows, results, "make bench-cluster BENCH_FLAGS=--update-docs", note)
        update_docs(DOCUMENT, text, CLUSTER_MARKS)
        console.print(f"wrote {DOCUMENT.name}")
    return 0


def measured(row: Row, options: argparse.Namespace, console: Console, runs: int) -> list[dict[str, float]]:
    console.print(f"{row.key}: {row.title}, {runs} runs; load average {os.getloadavg()[0]:.1f}")
    runner = Runner(options.directory, options.seconds, 0, 0)
    started = time.monotonic()
    found = [runner.run(row) for _ in range(runs)]
    console.print(f"  {time.monotonic() - started:.0f} s")
    return found


def peers() -> Iterator[str]:
    """Yield a line about each other broker."""
    if rabbitmq.is_installed():
        yield "RabbitMQ is installed: three nodes, quorum queues, in the rows over AMQP"
    else:
        yield "RabbitMQ is not installed, so it is not measured"
    if nats.is_installed():
        yield "NATS is installed: three servers, a stream of three replicas, in the first rows with rates and times"
    else:
        yield "NATS is not installed (`nats-server` and `nats`), so it is not measured"
    there = "is installed, but this benchmark has no load for it" if shutil.which("lavinmq") else "is not installed"
    yield f"LavinMQ {there}, so it is not measured"


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.clusters", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="how often each row with rates is measured")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long a run with rates lasts")
    parser.add_argument("--faults", type=int, default=20, help="kills of a leader, and as many pauses")
    parser.add_argument("--cuts", type=int, default=5, help="cuts of a leader's network; 0: none")
    parser.add_argument("--moves", type=int, default=20, help="planned hand-overs")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="what a blank replica has to copy")
    parser.add_argument("--rows", nargs="*", metavar="KEY", help="only these, by the keys that are printed")
    parser.add_argument(
        "--directory", type=Path, default=Path("target/bench"), help="where the brokers keep their data"
    )
    parser.add_argument("--update-docs", action="store_true", help="write docs/benchmarks.md")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
