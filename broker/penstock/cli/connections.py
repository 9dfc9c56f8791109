"""`penstock connection` and `penstock consumer`: who is connected and consumes; close a connection."""

from typing import Annotated

import typer

from penstock.cli.group import Commands
from penstock.cli.options import Uri, complete_connections, connected
from penstock.cli.output import Output, print_done, print_records

__all__ = ["connections", "consumers"]

connections = Commands(help="List and close connections.")
consumers = Commands(help="List consumers.")
CONNECTION_COLUMNS = ("id", "peer", "users", "vhosts", "consumer_count")
CONSUMER_COLUMNS = (
    "queue",
    "consumer_tag",
    "user",
    "connection",
    "prefetch",
    "auto_ack",
    "exclusive",
    "active",
    "priority",
)
Number = Annotated[int, typer.Argument(help="The connection's id.", autocompletion=complete_connections)]


@connections.command("list")
def show(context: typer.Context, uri: Uri = None, output: Output = None) -> None:
    """List connections.

    Administrators and monitoring see all connections, others their own.
    """
    with connected(context, uri) as connection:
        print_records(connection.admin.list_connections(), CONNECTION_COLUMNS, output)


@connections.command()
def close(context: typer.Context, number: Number, uri: Uri = None, output: Output = None) -> None:
    """Close a connection.

    Administrators may close any connection, others their own. Most clients connect again by themselves.
    """
    with connected(context, uri) as connection:
        connection.admin.close_connection(number)
    print_done(f"connection {number} closed", {"id": number}, output)


@consumers.callback()
def choose() -> None:
    """List consumers."""


@consumers.command("list")
def show_consumers(context: typer.Context, uri: Uri = None, output: Output = None) -> None:
    """List consumers of the vhost.

    Administrators and monitoring see all consumers, others their own.
    """
    with connected(context, uri) as connection:
        print_records(connection.admin.list_consumers(), CONSUMER_COLUMNS, output)
