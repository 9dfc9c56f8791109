"""`penstock exchange`: list, declare and delete exchanges of the URI's vhost."""

from typing import Annotated

import typer

from penstock.cli.options import DEFAULT_URI, Arguments, IfUnused, Json, Uri, connected, read_fields
from penstock.cli.output import print_done, print_records

__all__ = ["app"]

app = typer.Typer(help="Exchanges of the URI's vhost.", no_args_is_help=True)
COLUMNS = ("name", "type", "durable", "auto_delete", "internal", "arguments")


@app.command("list")
def show(context: typer.Context, uri: Uri = DEFAULT_URI, is_json: Json = False) -> None:
    """List the exchanges."""
    with connected(context, uri) as connection:
        print_records(connection.admin.list_exchanges(), COLUMNS, is_json)


@app.command()
def declare(
    context: typer.Context,
    name: str,
    kind: Annotated[str, typer.Option("--type", "-t", help="direct, fanout, topic or headers.")] = "direct",
    durable: Annotated[bool, typer.Option("--durable/--transient")] = True,
    auto_delete: Annotated[bool, typer.Option("--auto-delete", help="Gone with its last binding.")] = False,
    internal: Annotated[bool, typer.Option("--internal", help="Only other exchanges may send to it.")] = False,
    argument: Arguments = None,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Make an exchange, or check that it is as asked."""
    with connected(context, uri) as connection:
        connection.declare_exchange(name, kind, durable, auto_delete, internal, read_fields(argument))
    print_done(f"exchange '{name}' of type {kind} is there", {"name": name, "type": kind}, is_json)


@app.command()
def delete(
    context: typer.Context, name: str, if_unused: IfUnused = False, uri: Uri = DEFAULT_URI, is_json: Json = False
) -> None:
    """Delete an exchange with its bindings."""
    with connected(context, uri) as connection:
        connection.delete_exchange(name, if_unused)
    print_done(f"exchange '{name}' deleted", {"name": name}, is_json)
