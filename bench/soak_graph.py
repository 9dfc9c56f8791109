"""The graph of a soak: memory, disk and latency over time, on a light background of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.soak_findings import SEGMENTS, Run
from bench.soak_samples import Sample

__all__ = ["draw"]

GROUND, INK, GRID = "#fbfbf8", "#24292f", "#d8d8d0"
BLUE, ORANGE, GREEN, RED = "#1f6fb2", "#d9722b", "#3f8f4f", "#b03a48"
LOOK: dict[Any, Any] = {
    # Text as text keeps the file small; the ids of its parts are then the same for the same run.
    "svg.fonttype": "none",
    "svg.hashsalt": "soak",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "lines.linewidth": 1.1,
}


def draw(run: Run, file: Path) -> None:
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(9, 8), facecolor=GROUND, layout="constrained")
        memory, disk, latency = figure.subplots(3, 1, sharex=True)
        draw_memory(memory, run)
        draw_disk(disk, run)
        draw_latency(latency, run)
        latency.set_xlabel("minutes")
        for axes in (memory, disk, latency):
            axes.set_facecolor(GROUND)
            axes.grid(color=GRID, linewidth=0.6)
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, metadata={"Date": None})


def draw_memory(axes: Any, run: Run) -> None:
    line(axes, run, lambda sample: sample.anonymous_bytes / 1e6, "anonymous", BLUE)
    line(axes, run, lambda sample: sample.mapped_bytes / 1e6, "mapped file pages", ORANGE)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("the broker's memory, MB")


def draw_disk(axes: Any, run: Run) -> None:
    spare = SEGMENTS * run.settings.segment_bytes_max
    line(axes, run, lambda sample: sample.disk_bytes_max / 1e6, "used, highest of 10 s", BLUE)
    line(axes, run, lambda sample: sample.live_bytes / 1e6, "live", GREEN)
    line(axes, run, lambda sample: (2 * sample.live_bytes + spare) / 1e6, "2 x live + 3 segments", RED, "--")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("disk, MB")


def draw_latency(axes: Any, run: Run) -> None:
    line(axes, run, lambda sample: sample.os_us["p50"] / 1e3, "os, p50", BLUE)
    line(axes, run, lambda sample: sample.os_us["p99"] / 1e3, "os, p99", BLUE, ":")
    line(axes, run, lambda sample: sample.disk_us["p50"] / 1e3, "disk, p50", ORANGE)
    line(axes, run, lambda sample: sample.disk_us["p99"] / 1e3, "disk, p99", ORANGE, ":")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylabel("confirm of one message, ms")


def line(axes: Any, run: Run, value: Callable[[Sample], float], label: str, color: str, style: str = "-") -> None:
    minutes = [sample.at_seconds / 60 for sample in run.samples]
    axes.plot(minutes, [value(sample) for sample in run.samples], label=label, color=color, linestyle=style)
