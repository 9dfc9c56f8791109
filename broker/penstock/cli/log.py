"""`penstock log`: looks into the log of a stopped broker's vhost, without a broker."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.output import print_json, print_rows

__all__ = ["app"]

app = typer.Typer(help="The log of a stopped broker's vhost.", no_args_is_help=True)
COLUMNS = ("file", "first_position", "bytes", "records", "messages", "settles", "error")
DAMAGED = 1

Directory = Annotated[
    Path, typer.Argument(help="A vhost's folder in the data directory.", exists=True, file_okay=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print nothing but JSON on stdout.")]


@app.command()
def inspect(directory: Directory, is_json: JsonOption = False) -> None:
    """Show the segments and what they hold."""
    _print(_read(directory, verify=False), is_json)


@app.command()
def verify(directory: Directory, is_json: JsonOption = False) -> None:
    """Check every byte of every record; the exit status is 1 when something is damaged."""
    segments = _read(directory, verify=True)
    _print(segments, is_json)
    damaged = [segment for segment in segments if segment["error"] is not None]
    for segment in damaged:
        typer.echo(f"penstock: {segment['file']} is damaged at {segment['error_at']}: {segment['error']}", err=True)
    if damaged:
        raise typer.Exit(DAMAGED)


def _read(directory: Path, *, verify: bool) -> list[dict[str, Any]]:
    logs = import_module("penstock.storage.logs")
    segments: list[dict[str, Any]] = logs.inspect(directory, verify=verify)
    return segments


def _print(segments: list[dict[str, Any]], is_json: bool) -> None:
    if is_json:
        print_json(segments)
        return
    print_rows([[segment[column] for column in COLUMNS] for segment in segments], COLUMNS)
