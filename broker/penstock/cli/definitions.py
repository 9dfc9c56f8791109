"""`penstock definitions`: users, vhosts, permissions, exchanges, queues and bindings as JSON, out and in."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import DEFAULT_URI, Json, Uri, connected
from penstock.cli.output import print_done, print_note, progress

__all__ = ["app"]

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
        document = connection.export_definitions(vhost)
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
        added = connection.import_definitions(document, vhost)
    if not any(added.values()) and not is_json:
        print_note("everything in it was there already")
    text = "added " + (", ".join(f"{count:,} {kind}" for kind, count in sorted(added.items())) or "nothing")
    print_done(text, {"added": added}, is_json)
