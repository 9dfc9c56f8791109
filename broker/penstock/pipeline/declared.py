"""Runs a project of Spark Declarative Pipelines with PySpark's command and reads the progress of its flows.

The project is run unchanged. A folder of Spark settings, which lives as long as the run, makes Spark log its events;
they say how many rows each micro-batch had.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.project import Project
from penstock.pipeline.scratch import scratch_folder
from penstock.pipeline.summary import Note, Summary
from penstock.spark.interpreter import write_interpreter

__all__ = ["progress_of", "run_project"]

PROGRESS = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"
# Spark's own log fills screens; the command's lines have the important information.
QUIET = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n
"""
# Lines of output that a failure's error includes.
SHOWN_MAX = 30
STOP_SECONDS_MAX = 30


def run_project(project: Project, master: str, note: Note) -> Summary:
    """Run until every flow has read all available input. Raises PipelineError."""
    folder = scratch_folder()
    events = folder / "events"
    events.mkdir()
    environment = surroundings(folder, events)
    command = [pipelines_command(), "run", "--spec", str(project.specification.resolve()), "--remote", master]
    note(f"starting Spark ({master})")
    started = monotonic()
    followed(command, environment, note)
    summary = Summary(seconds=monotonic() - started)
    lines = (line for file in sorted(events.glob("*")) for line in file.read_text(encoding="utf-8").splitlines())
    for name, (rows, batches) in sorted(progress_of(lines).items()):
        summary.add(name, rows, batches)
    return summary


def pipelines_command() -> str:
    beside = Path(sys.executable).with_name("spark-pipelines")
    found = str(beside) if beside.exists() else shutil.which("spark-pipelines")
    if found is None:
        raise PipelineError("spark-pipelines is missing; install 'penstock[spark]'")
    return found


def surroundings(folder: Path, events: Path) -> dict[str, str]:
    """Return the command's environment: this Python, and the user's Spark settings with ours after them."""
    settings = folder / "conf"
    own = os.environ.get("SPARK_CONF_DIR")
    if own is None:
        settings.mkdir()
    else:
        shutil.copytree(own, settings)
    with (settings / "spark-defaults.conf").open("a", encoding="utf-8") as out:
        out.write("\nspark.ui.enabled false\nspark.ui.showConsoleProgress false\n")
        out.write(f"spark.eventLog.enabled true\nspark.eventLog.dir {events.as_uri()}\n")
        out.write("spark.eventLog.rolling.enabled false\nspark.eventLog.compress false\n")
    if not (settings / "log4j2.properties").exists():
        (settings / "log4j2.properties").write_text(QUIET)
    path = os.pathsep.join(dict.fromkeys(filter(None, sys.path)))
    found = {**os.environ, "SPARK_CONF_DIR": str(settings), "PYTHONPATH": path}
    return {**found, "PYSPARK_PYTHON": write_interpreter(folder)}


def followed(command: list[str], environment: Mapping[str, str], note: Note) -> None:
    """Report the command's lines about flows as they come, and its last lines when it fails."""
    said: list[str] = []
    with group(command, environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said = [*said[1 - SHOWN_MAX :], line.rstrip()]
            if ": Flow " in line or ": Run is" in line:
                note(line.rstrip().partition(": ")[2])
        status = process.wait()
    if status != 0:
        for line in said:
            note(line)
        raise PipelineError(f"spark-pipelines ended with {status}; see its output above")


@contextmanager
def group(command: list[str], environment: Mapping[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """Start a process whose children end with it, however the block is left."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        yield process
    finally:
        ended(process)


def ended(process: "subprocess.Popen[str]") -> None:
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            break
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            continue
        break


def progress_of(lines: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return the rows read and non-empty batches of each flow, from the lines of Spark's event log."""
    found: dict[str, tuple[int, int]] = {}
    for line in lines:
        if PROGRESS not in line:
            continue
        progress = progress_in(json.loads(line))
        name, rows = str(progress.get("name")), int(progress.get("numInputRows") or 0)
        if rows == 0:
            rows = sum(int(source.get("numInputRows") or 0) for source in progress.get("sources") or [])
        before = found.get(name, (0, 0))
        found[name] = (before[0] + rows, before[1] + (1 if rows else 0))
    return found


def progress_in(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the progress, which some versions of Spark write as an object and others as text."""
    progress = event.get("progress", {})
    found: Mapping[str, Any] = json.loads(progress) if isinstance(progress, str) else progress
    return found
