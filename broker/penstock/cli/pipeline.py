"""`penstock pipeline`: write, check and run pipelines on Spark, and those that archive a stream, which need no Spark.

Progress goes to stderr, the summary to stdout. PySpark is asked for when a pipeline runs, not before.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.options import Json
from penstock.cli.output import print_done, print_note

__all__ = ["app"]

app = typer.Typer(help="Pipelines from streams to streams and tables, on Spark.", no_args_is_help=True)
ARCHIVE_DOCUMENT = "penstock.pipeline.archive_document"
File = Annotated[Path, typer.Argument(help="The pipeline's document, YAML.")]


@app.command()
def init(
    file: File,
    is_archive: Annotated[
        bool, typer.Option("--archive", help="One that moves old messages of a stream to Parquet.")
    ] = False,
    is_json: Json = False,
) -> None:
    """Write a document to begin with."""
    if is_archive:
        archives(ARCHIVE_DOCUMENT).write_archive_template(file)
    else:
        rooms("penstock.pipeline").write_template(file)
    print_done(f"wrote {file}; change it, then: penstock pipeline run {file}", {"file": str(file)}, is_json)


@app.command()
def validate(file: File, is_json: Json = False) -> None:
    """Check a document and what it names, without Spark and without a broker."""
    if archives(ARCHIVE_DOCUMENT).is_archive(file):
        archiving = archives(ARCHIVE_DOCUMENT).read_archive(file, os.environ)
        what = {"name": archiving.name, "stream": archiving.stream, "to": str(archiving.folder)}
        print_done(f"archive '{archiving.name}' is right: '{archiving.stream}' to {archiving.folder}", what, is_json)
        return
    found = rooms("penstock.pipeline").read_pipeline(file)
    count = len(found.sinks)
    print_done(
        f"pipeline '{found.name}' is right: {found.mode}, {count} sink{'s' if count > 1 else ''}",
        {"name": found.name, "mode": found.mode, "sinks": count},
        is_json,
    )


@app.command()
def run(
    file: File,
    master: Annotated[str, typer.Option("--master", help="Where Spark runs.")] = "local[2]",
    is_json: Json = False,
) -> None:
    """Check a document, then run it: to the end of the stream, or on and on until interrupted."""
    if archives(ARCHIVE_DOCUMENT).is_archive(file):
        run_archive(file, is_json)
        return
    pipeline = rooms("penstock.pipeline").read_pipeline(file)
    done = rooms("penstock.pipeline.running").run_pipeline(pipeline, master, print_note)
    # Every sink reads the source by itself; the one that read most stands for the run.
    rows, batches = max(done.rows, default=0), max(done.batches, default=0)
    rate = rows / max(done.seconds, 0.001)
    print_done(
        f"pipeline '{pipeline.name}': {rows:,} rows in {done.seconds:.1f} s ({rate:,.0f} rows/s), {batches} batches",
        {"rows": done.rows, "batches": done.batches, "seconds": round(done.seconds, 3)},
        is_json,
    )


def run_archive(file: Path, is_json: bool) -> None:
    archiving = archives(ARCHIVE_DOCUMENT).read_archive(file, os.environ)
    done = archives("penstock.pipeline.archiving").run_archive(archiving, print_note)
    print_done(
        f"archive '{archiving.name}': {done.rows:,} rows in {done.files} files of {done.bytes:,} bytes, "
        f"{done.seconds:.1f} s",
        {"rows": done.rows, "files": done.files, "bytes": done.bytes, "seconds": round(done.seconds, 3)},
        is_json,
    )


def rooms(name: str, way_out: str = "install 'penstock[spark]', and Java 17 to run a pipeline") -> Any:
    """A module that needs what only pipelines need."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(f"{error.name} is missing; {way_out}") from error


def archives(name: str) -> Any:
    return rooms(name, "install 'penstock[spark]', or 'penstock[archive]' for a pipeline that archives")
