"""`penstock permission`: list, set and delete what a user may do in a virtual host, and with which routing keys."""

from typing import Annotated

import typer

from penstock.cli.options import DEFAULT_URI, Json, Uri, connected
from penstock.cli.output import print_done, print_records

__all__ = ["app"]

app = typer.Typer(help="Permissions: regular expressions that a whole name must match.", no_args_is_help=True)
COLUMNS = ("user", "vhost", "configure", "write", "read")

TOPIC_COLUMNS = ("user", "vhost", "exchange", "write", "read")

VhostOption = Annotated[str | None, typer.Option("--vhost", help="Default: the URI's.")]


@app.command("list")
def show(
    context: typer.Context,
    user: Annotated[str | None, typer.Option("--user", help="Only those of this user.")] = None,
    vhost: Annotated[str | None, typer.Option("--vhost", help="Only those in this vhost.")] = None,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """List the permissions."""
    with connected(context, uri) as connection:
        print_records(connection.admin.list_permissions(user, vhost), COLUMNS, is_json)


@app.command("set")
@app.command("add", hidden=True)
def put(
    context: typer.Context,
    user: str,
    vhost: VhostOption = None,
    configure: Annotated[str, typer.Option("--configure", help="What they may declare and delete.")] = "",
    write: Annotated[str, typer.Option("--write", help="What they may publish to.")] = "",
    read: Annotated[str, typer.Option("--read", help="What they may consume from.")] = "",
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Give a user permissions in a virtual host, in place of those they had there."""
    with connected(context, uri) as connection:
        connection.admin.set_permission(user, vhost, configure, write, read)
    print_done(f"permissions of '{user}' set", {"user": user}, is_json)


@app.command()
def delete(
    context: typer.Context, user: str, vhost: VhostOption = None, uri: Uri = DEFAULT_URI, is_json: Json = False
) -> None:
    """Take a user's permissions in a virtual host away."""
    with connected(context, uri) as connection:
        connection.admin.delete_permission(user, vhost)
    print_done(f"permissions of '{user}' deleted", {"user": user}, is_json)


@app.command("list-topic")
def show_topic(
    context: typer.Context,
    user: Annotated[str | None, typer.Option("--user", help="Only those of this user.")] = None,
    vhost: Annotated[str | None, typer.Option("--vhost", help="Only those in this vhost.")] = None,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """List which routing keys of topic exchanges users may write and bind."""
    with connected(context, uri) as connection:
        print_records(connection.admin.list_topic_permissions(user, vhost), TOPIC_COLUMNS, is_json)


@app.command("set-topic")
def put_topic(
    context: typer.Context,
    user: str,
    exchange: str,
    vhost: VhostOption = None,
    write: Annotated[str, typer.Option("--write", help="Routing keys that they may publish with.")] = "",
    read: Annotated[str, typer.Option("--read", help="Routing keys that they may bind.")] = "",
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Narrow what a user may do with a topic exchange. {username} and {vhost} stand for those names."""
    with connected(context, uri) as connection:
        connection.admin.set_topic_permission(user, exchange, vhost, write, read)
    print_done(f"topic permission of '{user}' on '{exchange}' set", {"user": user, "exchange": exchange}, is_json)


@app.command("clear-topic")
@app.command("delete-topic", hidden=True)
def delete_topic(
    context: typer.Context,
    user: str,
    exchange: Annotated[str | None, typer.Argument(help="Default: all in the virtual host.")] = None,
    vhost: VhostOption = None,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Let a user use every routing key again."""
    with connected(context, uri) as connection:
        connection.admin.delete_topic_permission(user, exchange, vhost)
    print_done(f"topic permissions of '{user}' cleared", {"user": user}, is_json)
