"""`penstock exchange`: list, declare and delete exchanges of the URI's vhost."""

from typing import Annotated

import typer

from penstock.cli.group import Commands
from penstock.cli.options import Arguments, ExchangeName, IfUnused, Uri, connected, read_fields
from penstock.cli.output import Output, print_done, print_records

__all__ = ["app"]

app = Commands(help="Manage exchanges.")
COLUMNS = ("name", "type", "durable", "auto_delete", "internal", "arguments")


@app.command("list")
def show(context: typer.Context, uri: Uri = None, output: Output = None) -> None:
    """List exchanges."""
    with connected(context, uri) as connection:
        print_records(connection.admin.list_exchanges(), COLUMNS, output)


@app.command()
def declare(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The exchange.")],
    kind: Annotated[
        str, typer.Option("--type", "-t", help="direct, fanout, topic, headers, x-consistent-hash, ...")
    ] = "direct",
    durable: Annotated[bool, typer.Option("--durable/--transient", help="Survive a restart.")] = True,
    auto_delete: Annotated[bool, typer.Option("--auto-delete", help="Delete it with its last binding.")] = False,
    internal: Annotated[bool, typer.Option("--internal", help="Only exchanges may publish to it.")] = False,
    argument: Arguments = None,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Declare an exchange."""
    with connected(context, uri) as connection:
        connection.declare_exchange(name, kind, durable, auto_delete, internal, read_fields(argument))
    print_done(f"exchange '{name}' of type {kind} declared", {"name": name, "type": kind}, output)


@app.command()
def delete(
    context: typer.Context, name: ExchangeName, if_unused: IfUnused = False, uri: Uri = None, output: Output = None
) -> None:
    """Delete an exchange with its bindings."""
    with connected(context, uri) as connection:
        connection.delete_exchange(name, if_unused)
    print_done(f"exchange '{name}' deleted", {"name": name}, output)
