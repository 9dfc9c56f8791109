"""`penstock pipeline`: write, check and run pipelines on Spark.

Progress goes to stderr, the summary to stdout. PySpark is asked for when a pipeline runs, not before.
"""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.options import Json
from penstock.cli.output import print_done, print_note

__all__ = ["app"]

app = typer.Typer(help="Pipelines from streams to streams and tables, on Spark.", no_args_is_help=True)
File = Annotated[Path, typer.Argument(help="The pipeline's document, YAML.")]


@app.command()
def init(file: File, is_json: Json = False) -> None:
    """Write a document to begin with."""
    rooms("penstock.pipeline").write_template(file)
    print_done(f"wrote {file}; change it, then: penstock pipeline run {file}", {"file": str(file)}, is_json)


@app.command()
def validate(file: File, is_json: Json = False) -> None:
    """Check a document and what it names, without Spark and without a broker."""
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


def rooms(name: str) -> Any:
    """A module that needs what only pipelines need."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{error.name} is missing; install 'penstock[spark]', and Java 17 to run a pipeline"
        ) from error
