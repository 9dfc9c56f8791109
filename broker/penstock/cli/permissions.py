"""`penstock permission`: list, set and delete what a user may do in a virtual host, and with which routing keys."""

from typing import Annotated

import typer

from penstock.cli.group import Commands
from penstock.cli.options import ExchangeName, Uri, UserName, complete_users, complete_vhosts, connected
from penstock.cli.output import Output, print_done, print_records

__all__ = ["app"]

app = Commands(help="Manage permissions.")
COLUMNS = ("user", "vhost", "configure", "write", "read")

TOPIC_COLUMNS = ("user", "vhost", "exchange", "write", "read")

VhostOption = Annotated[
    str | None, typer.Option("--vhost", help="The vhost; default: the URI's.", autocompletion=complete_vhosts)
]


@app.command("list")
def show(
    context: typer.Context,
    user: Annotated[
        str | None, typer.Option("--user", help="Only those of this user.", autocompletion=complete_users)
    ] = None,
    vhost: Annotated[
        str | None, typer.Option("--vhost", help="Only those in this vhost.", autocompletion=complete_vhosts)
    ] = None,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """List permissions."""
    with connected(context, uri) as connection:
        print_records(connection.admin.list_permissions(user, vhost), COLUMNS, output)


@app.command("set")
def put(
    context: typer.Context,
    user: UserName,
    vhost: VhostOption = None,
    configure: Annotated[str, typer.Option("--configure", help="Pattern of names to declare and delete.")] = "",
    write: Annotated[str, typer.Option("--write", help="Pattern of names to publish to.")] = "",
    read: Annotated[str, typer.Option("--read", help="Pattern of names to consume from.")] = "",
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Set a user's permissions in a vhost.

    Each pattern is a regular expression that must match a whole name.
    """
    with connected(context, uri) as connection:
        connection.admin.set_permission(user, vhost, configure, write, read)
    print_done(f"permissions of '{user}' set", {"user": user}, output)


@app.command()
def delete(
    context: typer.Context, user: UserName, vhost: VhostOption = None, uri: Uri = None, output: Output = None
) -> None:
    """Delete a user's permissions in a vhost."""
    with connected(context, uri) as connection:
        connection.admin.delete_permission(user, vhost)
    print_done(f"permissions of '{user}' deleted", {"user": user}, output)


@app.command("list-topic")
def show_topic(
    context: typer.Context,
    user: Annotated[
        str | None, typer.Option("--user", help="Only those of this user.", autocompletion=complete_users)
    ] = None,
    vhost: Annotated[
        str | None, typer.Option("--vhost", help="Only those in this vhost.", autocompletion=complete_vhosts)
    ] = None,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """List topic permissions."""
    with connected(context, uri) as connection:
        print_records(connection.admin.list_topic_permissions(user, vhost), TOPIC_COLUMNS, output)


@app.command("set-topic")
def put_topic(
    context: typer.Context,
    user: UserName,
    exchange: ExchangeName,
    vhost: VhostOption = None,
    write: Annotated[str, typer.Option("--write", help="Pattern of routing keys to publish with.")] = "",
    read: Annotated[str, typer.Option("--read", help="Pattern of routing keys to bind.")] = "",
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Set a user's permissions on a topic exchange.

    Each pattern is a regular expression that must match a whole routing key. {username} and {vhost} stand for those
    names.
    """
    with connected(context, uri) as connection:
        connection.admin.set_topic_permission(user, exchange, vhost, write, read)
    print_done(f"topic permission of '{user}' on '{exchange}' set", {"user": user, "exchange": exchange}, output)


@app.command("delete-topic")
def delete_topic(
    context: typer.Context,
    user: UserName,
    exchange: Annotated[str | None, typer.Argument(help="The exchange; default: all in the vhost.")] = None,
    vhost: VhostOption = None,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Delete a user's topic permissions."""
    with connected(context, uri) as connection:
        connection.admin.delete_topic_permission(user, exchange, vhost)
    print_done(f"topic permissions of '{user}' deleted", {"user": user}, output)
