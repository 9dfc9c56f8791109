"""`penstock log`: inspect, verify and repair the logs of a stopped broker."""

from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.group import Commands
from penstock.cli.output import Format, Output, print_json, print_rows

__all__ = ["app"]

app = Commands(help="Inspect and repair logs of a stopped broker.")
COLUMNS = ("file", "first_position", "bytes", "records", "messages", "settles", "error")
CORRUPT = 1
# The entry of messages that live and have no record.
NO_FILE = "no segment"

Directory = Annotated[
    Path, typer.Argument(help="A data directory, or a vhost's directory in it.", exists=True, file_okay=False)
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command()
def inspect(directory: Directory, output: Output = None) -> None:
    """Show segments and their contents."""
    _print(_logs().inspect(directory, verify=False), output)


@app.command()
def verify(directory: Directory, output: Output = None) -> None:
    """Check every record.

    The exit status is 1 if something is corrupt.
    """
    segments = _logs().inspect(directory, verify=True)
    _print(segments, output)
    lines = [line for segment in segments for line in _corruption_of(segment)]
    for line in lines:
        typer.echo(f"penstock: {line}", err=True)
    if lines:
        raise typer.Exit(CORRUPT)


@app.command()
def repair(directory: Directory, is_yes: YesOption = False, output: Output = None) -> None:
    """Drop messages that cannot be read.

    They are marked as dropped, and a segment without a readable header is renamed. Corrupt segments stay, so `verify`
    reports the corruption until the segment is removed. Stop the broker first.
    """
    if not is_yes:
        for line in (line for segment in _logs().inspect(directory, verify=True) for line in _corruption_of(segment)):
            typer.echo(f"penstock: {line}", err=True)
        typer.confirm(f"Drop every message in {directory} that cannot be read?", abort=True, err=True)
    repaired = _logs().repair(directory)
    if output is Format.JSON:
        print_json(asdict(repaired))
        return
    for dropped in repaired.dropped:
        typer.echo(f"dropped message {dropped.sequence} of queue '{dropped.queue}': {dropped.error}")
    for file in repaired.set_aside:
        typer.echo(f"set {file} aside: its header cannot be read")
    if not repaired.dropped and not repaired.set_aside:
        typer.echo("nothing to repair: every message that lives can be read")


def _logs() -> Any:
    return import_module("penstock.storage.logs")


def _corruption_of(segment: dict[str, Any]) -> list[str]:
    file = segment["file"]
    if file.endswith(NO_FILE):
        return [f"{each['error']} ({_queues(each['queues'])})" for each in segment["corrupt"]]
    lines = [
        f"{file} is corrupt at {each['at']} (position {each['position']}, {_queues(each['queues'])}): {each['error']}"
        for each in segment["corrupt"]
    ]
    if segment["error"] is not None and not lines:
        lines.append(f"{file} is corrupt at {segment['error_at']}: {segment['error']}")
    return lines


def _queues(names: list[str]) -> str:
    if not names:
        return "queue unknown"
    return f"queue{'s' if len(names) > 1 else ''} " + ", ".join(f"'{name}'" for name in names)


def _print(segments: list[dict[str, Any]], output: Format | None) -> None:
    if output is Format.JSON:
        print_json(segments)
        return
    print_rows([[segment[column] for column in COLUMNS] for segment in segments], COLUMNS, output)
