"""Runs the pipeline shop-traffic.yaml on Spark over the requests of a web shop's log, and draws the result.

It publishes the log to a stream and shows the output in a stream and in a Parquet folder. `make demo-pipeline` runs it.
Broker, data and checkpoints are temporary; the picture stays, and is the same each time. An argument sets its path.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pyarrow as pa
import pyarrow.parquet
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

import penstock
from examples.demo import LOG, broker

PIPELINES = Path(__file__).with_name("pipelines")
PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "demo-pipeline.png"
SOURCE, SINK = "requests", "traffic-by-hour"
SHOWN = 8
LINE = re.compile(r'\S+ - - \[(?P<at>[^]]+)\] "(?P<method>\S+) (?P<path>\S+) \S+" (?P<status>\d+) (?P<bytes>\d+)')
GROUND, INK = "#fbfbf8", "#24292f"
COLOURS = {
    "catalogue": "#1f6fb2",
    "pictures": "#d9722b",
    "home": "#3f8f4f",
    "checkout": "#b03a48",
    "accounts": "#7a5aa6",
}

Row = dict[str, Any]


def request(line: str) -> bytes:
    """Return a line of the log in the pipeline's source format, JSON."""
    found = LINE.fullmatch(line)
    if found is None:
        raise SystemExit(f"{LOG.name}: no request in {line!r}")
    at = datetime.strptime(found["at"], "%d/%b/%Y:%H:%M:%S %z").isoformat()
    numbers = {name: int(found[name]) for name in ("status", "bytes")}
    return json.dumps({"at": at, "method": found["method"], "path": found["path"], **numbers}).encode()


def run_pipeline(folder: Path, uri: str) -> None:
    """On a copy of the examples, so that what it writes beside its document is ours."""
    document = shutil.copytree(PIPELINES, folder / "pipelines") / "shop-traffic.yaml"
    command = [str(Path(sys.executable).with_name("penstock")), "pipeline", "run", str(document)]
    environment = {**os.environ, "PENSTOCK_URI": uri, "TZ": "UTC"}
    subprocess.run(command, env=environment, check=True, timeout=600)


def from_stream(connection: penstock.Connection) -> list[Row]:
    rows = [json.loads(message.body) for message in connection.stream(SINK).read("first", until="next")]
    return in_order({**row, "hour": datetime.fromisoformat(row["hour"])} for row in rows)


def from_parquet(folder: Path) -> list[Row]:
    found = pyarrow.parquet.read_table(folder / "pipelines" / "target" / SINK)
    # Spark's files say neither zone nor unit that Python has.
    place = found.schema.get_field_index("hour")
    hours = found["hour"].cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    return in_order(found.set_column(place, "hour", hours).to_pylist())


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["hour"], row["section"]))


def show(console: Console, title: str, rows: list[Row]) -> None:
    table = Table(title=f"{title}: {len(rows)} rows, of which the last")
    for name in ("hour", "section", "requests", "errors", "bytes"):
        table.add_column(name, justify="left" if name == "section" else "right")
    for row in rows[-SHOWN:]:
        numbers = (f"{row[name]:,}" for name in ("requests", "errors", "bytes"))
        table.add_row(f"{row['hour'].astimezone(UTC):%d %b %H:00}", row["section"], *numbers)
    console.print(table)


def draw(rows: list[Row], file: Path) -> None:
    """Draw requests by hour with stacked sections. Equal rows make equal bytes."""
    by_hour: dict[int, dict[str, int]] = {}
    for row in rows:
        by_hour.setdefault(row["hour"].astimezone(UTC).hour, {})[row["section"]] = row["requests"]
    hours = sorted(by_hour)
    with mpl.rc_context({"font.size": 9, "text.color": INK, "axes.edgecolor": INK, "svg.hashsalt": "demo"}):
        figure = Figure(figsize=(8, 3.6), dpi=110, facecolor=GROUND, layout="constrained")
        axes = figure.subplots()
        axes.set_facecolor(GROUND)
        floor = [0] * len(hours)
        for section, colour in COLOURS.items():
            counts = [by_hour[hour].get(section, 0) for hour in hours]
            axes.bar(hours, counts, bottom=floor, label=section, color=colour, width=0.85)
            floor = [low + count for low, count in zip(floor, counts, strict=True)]
        axes.set_xlabel("hour of the day, UTC")
        axes.set_ylabel("requests")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="upper left")
        file.parent.mkdir(parents=True, exist_ok=True)
        # Without the name and version of what drew it.
        figure.savefig(file, metadata={"Software": None})


def run(folder: Path, uri: str, picture: Path) -> None:
    console = Console()
    lines = LOG.read_text().splitlines()
    with penstock.connect(uri) as connection:
        connection.declare_stream(SOURCE)
        connection.declare_stream(SINK)
        started = time.perf_counter()
        connection.stream(SOURCE).publish_many([request(line) for line in lines])
        seconds = time.perf_counter() - started
        console.print(f"published {len(lines):,} requests of {LOG.name} to the stream '{SOURCE}' in {seconds:.2f} s")
        run_pipeline(folder, uri)
        streamed = from_stream(connection)
    stored = from_parquet(folder)
    show(console, f"the stream '{SINK}'", streamed)
    show(console, "the Parquet folder", stored)
    if [row["requests"] for row in streamed] != [row["requests"] for row in stored]:
        raise SystemExit("stream and folder differ, and they must not")
    draw(stored, picture)
    console.print(f"drew {picture.name}")


def main() -> None:
    picture = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as uri:
        run(Path(folder), uri, picture)


if __name__ == "__main__":
    main()
