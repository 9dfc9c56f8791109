"""`penstock definitions`: users, vhosts, permissions, exchanges, queues and bindings as JSON, out and in."""

import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.options import DEFAULT_URI, Json, Uri, connected
from penstock.cli.output import print_done, print_note, print_records, progress

__all__ = ["app"]

Directory = Annotated[
    Path, typer.Argument(help="A vhost's folder in the data directory.", exists=True, file_okay=False)
]

COLUMNS = ("vhost", "directory", "queues", "exchanges", "bindings", "error")
REFUSED = 1

app = typer.Typer(help="Definitions, as the JSON of RabbitMQ and LavinMQ.", no_args_is_help=True)

VhostOption = Annotated[
    str | None, typer.Option("--vhost", help="Only this vhost's, without users. Default: everything.")
]


@app.command("export")
def save(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A file, or - for stdout.", allow_dash=True)] = Path("-"),
    vhost: VhostOption = None,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Write the definitions to a file or to stdout."""
    with connected(context, uri) as connection:
        document = connection.admin.export_definitions(vhost)
    if str(file) == "-":
        sys.stdout.write(document.decode().rstrip("\n") + "\n")
        return
    file.write_bytes(document)
    print_done(f"{len(document):,} bytes written to {file}", {"file": str(file), "bytes": len(document)}, is_json)


@app.command("import")
def load(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A file, or - for stdin.", allow_dash=True)] = Path("-"),
    vhost: VhostOption = None,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Add what a file holds to what is there; a definition that differs from one there is refused."""
    document = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    with connected(context, uri) as connection, progress(is_json) as shown:
        if shown is not None:
            shown.add_task(f"importing {len(document):,} bytes", total=None)
        added = connection.admin.import_definitions(document, vhost)
    if not any(added.values()) and not is_json:
        print_note("everything in it was there already")
    text = "added " + (", ".join(f"{count:,} {kind}" for kind, count in sorted(added.items())) or "nothing")
    print_done(text, {"added": added}, is_json)


@app.command()
def verify(
    directory: Annotated[
        Path, typer.Argument(help="A data directory, or a vhost's folder in it.", exists=True, file_okay=False)
    ],
    is_json: Json = False,
) -> None:
    """Check the definitions of a stopped broker; the exit status is 1 when a start refuses them."""
    verifying: Any = import_module("penstock.storage.definitions_verify")
    verified = verifying.verify(directory)
    print_records(verified, COLUMNS, is_json)
    refused = [one.error for one in verified if one.error is not None]
    for error in refused:
        typer.echo(f"penstock: {error}", err=True)
    if refused:
        raise typer.Exit(REFUSED)


@app.command()
def repair(
    directory: Directory,
    is_yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    is_json: Json = False,
) -> None:
    """Accept a definitions.amqp that starts refuse, when no better copy is to be had.

    What stands before the first place that cannot be read stays. The next start DELETES the queues that are then no
    longer named, with their messages. The file as it was stays as definitions.amqp.damaged. A broker must not run
    meanwhile.
    """
    repairing: Any = import_module("penstock.storage.definitions_repair")
    if not is_yes:
        _tell(repairing.look(directory))
        typer.confirm("Let the next start delete every other queue of this folder?", abort=True, err=True)
    readable = repairing.accept(directory)
    kept = ", ".join(f"'{name}'" for name in readable.queues) or "none"
    print_done(f"accepted; queues that stay: {kept}", asdict(readable), is_json)


def _tell(readable: Any) -> None:
    if readable.problem is not None:
        typer.echo(f"penstock: {readable.problem}", err=True)
    typer.echo(
        f"penstock: {len(readable.queues):,} queues, {len(readable.exchanges):,} exchanges and "
        f"{readable.binding_count:,} bindings can be read; the queues:",
        err=True,
    )
    for name in readable.queues:
        typer.echo(f"penstock:   {name}", err=True)
