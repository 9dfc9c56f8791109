"""`penstock pipeline`: write, check and run pipelines on Spark, and archives of streams, which need no Spark.

Progress goes to stderr, the summary to stdout. A pipeline prints its summary after SIGINT and SIGTERM as well; projects
and archives that a signal ends print none, and their next run does the work again. PySpark is asked for when a pipeline
runs, not before.
"""

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Annotated, Any

import typer

from penstock.cli.group import Commands
from penstock.cli.output import Format, Output, print_done, print_note

__all__ = ["app"]

app = Commands(help="Run pipelines on Spark, and archives of streams.")
ARCHIVE_DOCUMENT = "penstock.pipeline.archive_document"
File = Annotated[Path, typer.Argument(help="The pipeline's YAML document.")]
Place = Annotated[Path, typer.Argument(help="A YAML document, or the directory of a project.")]
DECLARATIVE_HELP = "Write a Spark Declarative Pipelines project."


@app.command()
def init(
    place: Place,
    declarative: Annotated[bool, typer.Option("--declarative", help=DECLARATIVE_HELP)] = False,
    is_archive: Annotated[bool, typer.Option("--archive", help="Write an archive: old messages to Parquet.")] = False,
    output: Output = None,
) -> None:
    """Write a template."""
    if is_archive and declarative:
        raise ValueError("--archive writes a document, --declarative a project; choose one of them")
    if is_archive:
        archives(ARCHIVE_DOCUMENT).write_archive_template(place)
    else:
        pipelines = pipeline_module("penstock.pipeline")
        (pipelines.write_template_project if declarative else pipelines.write_template)(place)
    print_done(f"wrote {place}; change it, then: penstock pipeline run {place}", {"file": str(place)}, output)


@app.command()
def export(
    file: File,
    folder: Annotated[Path, typer.Argument(help="The directory to create.")],
    output: Output = None,
) -> None:
    """Export a triggered pipeline for `spark-pipelines run`."""
    pipelines = pipeline_module("penstock.pipeline")
    pipelines.write_project(pipelines.read_pipeline(file), folder)
    print_done(f"wrote {folder}; cd {folder} && spark-pipelines run", {"folder": str(folder)}, output)


@app.command()
def validate(place: Place, output: Output = None) -> None:
    """Check a document or a project.

    This needs neither Spark nor a broker.
    """
    if archives(ARCHIVE_DOCUMENT).is_archive(place):
        archiving = archives(ARCHIVE_DOCUMENT).read_archive(place, os.environ)
        what = {"name": archiving.name, "stream": archiving.stream, "to": str(archiving.folder)}
        print_done(f"archive '{archiving.name}' is right: '{archiving.stream}' to {archiving.folder}", what, output)
        return
    pipelines = pipeline_module("penstock.pipeline")
    if pipelines.is_project(place):
        project = pipelines.read_project(place)
        print_done(f"the specification of '{project.name}' is right", {"name": project.name}, output)
        return
    found = pipelines.read_pipeline(place)
    count = len(found.sinks)
    print_done(
        f"pipeline '{found.name}' is right: {found.mode}, {count} sink{'s' if count > 1 else ''}",
        {"name": found.name, "mode": found.mode, "sinks": count},
        output,
    )


@app.command()
def run(
    place: Place,
    master: Annotated[str, typer.Option("--master", help="Spark's master.")] = "local[2]",
    batches: Annotated[
        int | None, typer.Option("--batches", min=1, help="End after this many batches with rows.")
    ] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0, help="End after this many seconds.")] = None,
    on_schedule: Annotated[bool, typer.Option("--schedule", help="Run on the document's schedule.")] = False,
    output: Output = None,
) -> None:
    """Run a pipeline.

    A triggered pipeline ends at the end of the stream, a continuous one when it is interrupted.
    """
    if archives(ARCHIVE_DOCUMENT).is_archive(place):
        refuse_limits(batches, seconds, on_schedule, "an archive")
        run_archive(place, output)
        return
    pipelines = pipeline_module("penstock.pipeline")
    if pipelines.is_project(place):
        refuse_limits(batches, seconds, on_schedule, "a project")
        project = pipelines.read_project(place)
        print_summary(project.name, declared(project, master), output)
        return
    pipeline = pipelines.read_pipeline(place)
    if pipeline.mode == "triggered":
        refuse_limits(batches, seconds, False, "a triggered pipeline")
    if on_schedule and not pipeline.schedule:
        raise ValueError("the document has no 'schedule'; write one, or leave --schedule out")
    running, summary = pipeline_module("penstock.pipeline.running"), pipeline_module("penstock.pipeline.summary")
    stopping = stop_event()

    def once() -> None:
        done = running.run_pipeline(pipeline, master, print_note, summary.Limits(batches, seconds), stopping)
        print_summary(pipeline.name, done, output)

    if on_schedule:
        by_cron(pipeline.schedule, once, stopping)
    else:
        once()


def by_cron(schedule: str, once: Callable[[], None], stopping: Event) -> None:
    def wait(seconds: float) -> bool:
        return stopping.wait(max(0.0, seconds))

    pipeline_module("penstock.pipeline.schedule").run_on_schedule(
        schedule, once, lambda: datetime.now(UTC), wait, print_note
    )


def declared(project: Any, master: str) -> Any:
    """Load a project. It has no loop to end: a signal ends Spark's command, and uncommitted work is done again."""

    def stop(number: int, _: object) -> None:
        raise ValueError(f"ended by {signal.Signals(number).name}; the next run goes on where this one was")

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return pipeline_module("penstock.pipeline.declared").run_project(project, master, print_note)


def stop_event() -> Event:
    """Set by SIGINT and SIGTERM: Spark's own handler would make them look like a failure."""
    stopping = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    return stopping


def refuse_limits(batches: int | None, seconds: float | None, on_schedule: bool, what: str) -> None:
    if batches is not None or seconds is not None:
        raise ValueError(f"--batches and --seconds are for continuous pipelines; {what} ends by itself")
    if on_schedule:
        raise ValueError(f"--schedule is for documents; {what} has none")


def print_summary(name: str, done: Any, output: Format | None) -> None:
    print_done(done.told(name), done.as_fields(), output)


def run_archive(file: Path, output: Format | None) -> None:
    archiving = archives(ARCHIVE_DOCUMENT).read_archive(file, os.environ)
    done = archives("penstock.pipeline.archiving").run_archive(archiving, print_note)
    print_done(
        f"archive '{archiving.name}': {done.rows:,} rows in {done.files} files of {done.bytes:,} bytes, "
        f"{done.seconds:.1f} s",
        {"rows": done.rows, "files": done.files, "bytes": done.bytes, "seconds": round(done.seconds, 3)},
        output,
    )


def pipeline_module(name: str, way_out: str = "install 'penstock[spark]', and Java 17 to run a pipeline") -> Any:
    """Import a module that needs libraries only for pipelines."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(f"{error.name} is missing; {way_out}") from error


def archives(name: str) -> Any:
    return pipeline_module(name, "install 'penstock[spark]', or 'penstock[archive]' for a pipeline that archives")
