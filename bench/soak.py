"""A broker under a modest mixed load for an hour: `make long-soak`. Every message is checked.

It writes its samples and its graph to a directory; `--draw FILE` draws the last run's graph again instead of running
one. The exit status is 1 when anything was lost, duplicated or out of order, or when the load was refused.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

import uvloop
from rich.console import Console
from rich.table import Table

import penstock.aio
from bench.report import machine
from bench.soak_findings import Run, Settings, Verdict, read_run, rows
from bench.soak_graph import draw
from bench.soak_load import FLOWS, Load
from bench.soak_samples import Sample, Sampler
from support import Broker

# Segments turn over every few seconds at this load, and half of the live messages are always old.
SEGMENT_BYTES_MAX = 8 * 1024 * 1024
LINE_WIDTH = 120


def main() -> int:
    options = parse(sys.argv[1:])
    file = options.directory / "samples.jsonl"
    console = Console(width=None if sys.stdout.isatty() else LINE_WIDTH)
    if options.draw is not None:
        draw(read_run(file), options.draw)
        console.print(f"wrote {options.draw}")
        return 0
    options.directory.mkdir(parents=True, exist_ok=True)
    with file.open("w") as output, started(options.directory) as broker:
        verdict = uvloop.run(soak(broker, options.minutes, output, console))
    run = read_run(file)
    console.print(as_table(run))
    if run.samples:
        draw(run, options.directory / "soak.svg")
    console.print(f"samples and graph are in {options.directory}")
    for name, count in verdict.broken.items():
        console.print(f"[red]{name}: {count:,}; it must be 0[/red]")
    return 1 if verdict.broken else 0


@contextmanager
def started(directory: Path) -> Iterator[Broker]:
    """Start a broker on a fresh directory; its log stays beside the samples."""
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        config = Path(folder) / "penstock.toml"
        config.write_text(f"segment_bytes_max = {SEGMENT_BYTES_MAX}\n")
        broker = Broker(Path(folder) / "data", "--config", str(config))
        try:
            with broker:
                yield broker
        finally:
            (directory / "broker.log").write_text(broker.log)


async def soak(broker: Broker, minutes: float, output: TextIO, console: Console) -> Verdict:
    settings = Settings(minutes, SEGMENT_BYTES_MAX, machine())
    write_line(output, "settings", asdict(settings))
    load = Load(broker.uri(), minutes * 60)
    await load.prepare()
    console.print(f"{sum(flow.rate for flow in FLOWS):,} messages a second for {minutes:g} minutes; a line every 10 s")
    watching = asyncio.create_task(watch(Sampler(broker, load), output, console))
    failures: list[BaseException] = []
    try:
        await load.run()
    except* (penstock.PenstockError, OSError, RuntimeError) as group:
        failures += group.exceptions
        console.print(f"[red]the load ended early: {'; '.join(str(error) for error in group.exceptions)}[/red]")
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    left = -1 if failures else await left_in(broker)
    visits = (load.visits.count, load.visits.wrong)
    verdict = Verdict.of(load.ledgers.values(), visits, left, len(failures))
    write_line(output, "verdict", asdict(verdict))
    return verdict


async def watch(sampler: Sampler, output: TextIO, console: Console) -> None:
    async for sample in sampler.samples():
        write_line(output, "sample", asdict(sample))
        console.print(as_line(sample), soft_wrap=True, highlight=False)


async def left_in(broker: Broker) -> int:
    async with penstock.aio.connect(broker.uri()) as connection:
        status = await connection.admin.status()
    return status.ready_count + status.unacked_count


def write_line(output: TextIO, key: str, value: dict[str, object]) -> None:
    """Write and flush a line, so that an interrupted run keeps its data."""
    output.write(json.dumps({key: value}) + "\n")
    output.flush()


def as_line(sample: Sample) -> str:
    return (
        f"{sample.at_seconds:7.0f} s  confirmed {sample.confirmed:>12,}  waiting {sample.waiting:>8,}"
        f"  anonymous {sample.anonymous_bytes / 1e6:6.1f} MB  disk {sample.disk_bytes / 1e6:7.1f} MB"
        f"  live {sample.live_bytes / 1e6:6.1f} MB  p99 os {sample.os_us['p99'] / 1e3:6.2f} ms,"
        f" disk {sample.disk_us['p99'] / 1e3:6.2f} ms  cores {sample.broker_cores:.2f} + {sample.load_cores:.2f}"
    )


def as_table(run: Run) -> Table:
    table = Table("case", "found", "wanted")
    for row in rows(run):
        table.add_row(*row)
    return table


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long the load lasts")
    parser.add_argument("--directory", type=Path, default=Path("target/soak"), help="for data, samples and graph")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="draw the last run's graph; nothing is run")
    options = parser.parse_args(arguments)
    if options.minutes <= 0:
        parser.error("--minutes must be more than 0")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
