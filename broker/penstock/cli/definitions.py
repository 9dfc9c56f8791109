"""`penstock definitions`: users, vhosts, permissions, exchanges, queues and bindings as JSON, out and in."""

import json
import os
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.group import Commands
from penstock.cli.options import Uri, connected
from penstock.cli.output import Format, Output, print_done, print_note, print_records, progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client.records import ImportedDefinitions

__all__ = ["app"]

Directory = Annotated[Path, typer.Argument(help="A vhost's directory.", exists=True, file_okay=False)]

COLUMNS = ("vhost", "directory", "queues", "exchanges", "bindings", "error")
REFUSED = 1
IN_REFUSALS = "definitions 'import'"

app = Commands(help="Export, import and check definitions.")

ExportedVhost = Annotated[str | None, typer.Option("--vhost", help="Only this vhost, without users.")]
TargetVhost = Annotated[str | None, typer.Option("--vhost", help="Import an export of one vhost into this vhost.")]


@app.command("export")
def save(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A file, or - for stdout.", allow_dash=True)] = Path("-"),
    vhost: ExportedVhost = None,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Export definitions as JSON.

    A new file can only be read by you: users are exported with the digests of their passwords.
    """
    with connected(context, uri) as connection:
        document = connection.admin.export_definitions(vhost)
    if str(file) == "-":
        sys.stdout.write(document.decode().rstrip("\n") + "\n")
        return
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as written:
        written.write(document)
    print_done(f"{len(document):,} bytes written to {file}", {"file": str(file), "bytes": len(document)}, output)


@app.command("import")
def load(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A file, or - for stdin.", allow_dash=True)] = Path("-"),
    vhost: TargetVhost = None,
    skip_unsupported: Annotated[
        bool, typer.Option("--skip-unsupported", help="Leave out and list what is not supported.")
    ] = False,
    shards: Annotated[
        int, typer.Option("--shards", min=1, help="Shards of new vhosts for which the file has no number.")
    ] = 1,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Import definitions from JSON.

    Users, permissions, policies and limits replace those of the same name. An exchange or a queue that differs from an
    existing one refuses the import. Nothing is deleted.
    """
    document = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    name = "stdin" if str(file) == "-" else str(file)
    _check_json(document, name)
    with connected(context, uri) as connection, progress(output) as shown:
        if shown is not None:
            shown.add_task(f"importing {len(document):,} bytes", total=None)
        imported = _import(
            name,
            lambda: connection.admin.import_definitions(
                document, vhost, skip_unsupported=skip_unsupported, shards=shards
            ),
        )
    added = imported.added
    for line in imported.skipped:
        print_note(f"skipped: {line}")
    if not any(added.values()) and output is not Format.JSON:
        print_note("all of it exists already")
    text = "added or changed: " + (", ".join(f"{kind} {count:,}" for kind, count in sorted(added.items())) or "nothing")
    print_done(text, imported, output)


def _import(name: str, ask: "Callable[[], ImportedDefinitions]") -> "ImportedDefinitions":
    """Import, and name the file in a refusal: the broker does not know it."""
    from penstock.client.errors import RefusedError

    try:
        return ask()
    except RefusedError as error:
        text = str(error)
        if not text.startswith(IN_REFUSALS):
            raise
        raise ValueError(f"definitions '{name}'{text.removeprefix(IN_REFUSALS)}") from error


def _check_json(document: bytes, name: str) -> None:
    """Raise ValueError with the name of a file that is not JSON; the broker does not know it."""
    try:
        json.loads(document)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"'{name}' is not JSON: {error}; use an unchanged export") from error


@app.command()
def verify(
    directory: Annotated[
        Path, typer.Argument(help="A data directory, or a vhost's directory in it.", exists=True, file_okay=False)
    ],
    output: Output = None,
) -> None:
    """Check the definitions of a stopped broker.

    The exit status is 1 if a broker would refuse to start with them.
    """
    verifying: Any = import_module("penstock.storage.definitions_verify")
    verified = verifying.verify(directory)
    print_records(verified, COLUMNS, output)
    refused = [one.error for one in verified if one.error is not None]
    for error in refused:
        typer.echo(f"penstock: {error}", err=True)
    if refused:
        raise typer.Exit(REFUSED)


@app.command()
def repair(
    directory: Directory,
    is_yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: Output = None,
) -> None:
    """Accept a corrupt definitions.amqp. Queues may be lost.

    Everything before the first unreadable place stays. The next start DELETES all other queues with their messages.
    The old file stays as definitions.amqp.corrupt. Stop the broker first, and use a backup instead if there is one.
    """
    repairing: Any = import_module("penstock.storage.definitions_repair")
    if not is_yes:
        _tell(repairing.look(directory))
        typer.confirm("Let the next start delete every other queue of this folder?", abort=True, err=True)
    readable = repairing.accept(directory)
    kept = ", ".join(f"'{name}'" for name in readable.queues) or "none"
    print_done(f"accepted; queues that stay: {kept}", asdict(readable), output)


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
