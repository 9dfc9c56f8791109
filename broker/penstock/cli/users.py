"""`penstock user`: list, add, change and delete users. A password that is not given is prompted for."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.group import Commands
from penstock.cli.options import (
    ClearLimits,
    ConnectionsMax,
    InFlightBytesMax,
    MessageBytesMax,
    PublishBytesRate,
    PublishRate,
    Uri,
    UserName,
    ask_password,
    connected,
)
from penstock.cli.output import Format, Output, print_done, print_fields, print_json, print_records

if TYPE_CHECKING:
    from penstock import Connection

__all__ = ["app"]

app = Commands(help="Manage users.")
COLUMNS = ("name", "tags")


@app.command("list")
def show(context: typer.Context, uri: Uri = None, output: Output = None) -> None:
    """List users."""
    with connected(context, uri) as connection:
        print_records(connection.admin.list_users(), COLUMNS, output)


Password = Annotated[str | None, typer.Option("--password", help="The password; others can see it in `ps`.")]
FromStdin = Annotated[bool, typer.Option("--password-stdin", help="Read the password from standard input.")]
Force = Annotated[bool, typer.Option("--force", help="Even if no administrator is left.")]


@app.command()
def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The user.")],
    password: Password = None,
    password_stdin: FromStdin = False,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="Such as administrator; repeatable.")] = None,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Add a user."""
    chosen = _password(password, password_stdin)
    with connected(context, uri) as connection:
        if name in _names(connection):
            raise ValueError(f"user '{name}' exists already; use set-password or set-tags")
        connection.admin.put_user(name, chosen, tag or [])
    print_done(f"user '{name}' added", {"name": name}, output)


@app.command("set-tags")
def set_tags(
    context: typer.Context,
    name: UserName,
    tags: Annotated[list[str] | None, typer.Argument(help="The tags, such as administrator; default: none.")] = None,
    force: Force = False,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Replace the tags of a user."""
    with connected(context, uri) as connection:
        _require(connection, name)
        connection.admin.put_user(name, tags=tags or [], force=force)
    print_done(f"tags of user '{name}' set", {"name": name, "tags": tags or []}, output)


@app.command("set-password")
def set_password(
    context: typer.Context,
    name: UserName,
    password: Password = None,
    password_stdin: FromStdin = False,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Change the password of a user."""
    chosen = _password(password, password_stdin)
    with connected(context, uri) as connection:
        _require(connection, name)
        connection.admin.put_user(name, chosen)
    print_done(f"password of user '{name}' changed", {"name": name}, output)


def _names(connection: "Connection") -> set[str]:
    return {user.name for user in connection.admin.list_users()}


def _require(connection: "Connection", name: str) -> None:
    if name not in _names(connection):
        raise ValueError(f"no user '{name}'; add it with `penstock user add {name}`")


def _password(given: str | None, from_stdin: bool) -> str:
    """Return the password that was given, read or asked for."""
    if given is not None and from_stdin:
        raise typer.BadParameter("cannot be combined with --password-stdin", param_hint="--password")
    if from_stdin:
        given = sys.stdin.readline().rstrip("\r\n")
    elif given is None:
        given = ask_password("Password", again="Again")
    if not given:
        hint = "--password-stdin" if from_stdin else "--password"
        raise typer.BadParameter("the password is empty", param_hint=hint)
    return given


@app.command()
def delete(
    context: typer.Context, name: UserName, force: Force = False, uri: Uri = None, output: Output = None
) -> None:
    """Delete a user and their permissions."""
    with connected(context, uri) as connection:
        connection.admin.delete_user(name, force=force)
    print_done(f"user '{name}' deleted", {"name": name}, output)


@app.command()
def limits(
    context: typer.Context,
    name: UserName,
    connections_max: ConnectionsMax = None,
    streams_max: Annotated[
        int | None, typer.Option("--streams-max", min=0, help="Most streams that publish or consume.")
    ] = None,
    publish_rate: PublishRate = None,
    publish_bytes_rate: PublishBytesRate = None,
    in_flight_bytes_max: InFlightBytesMax = None,
    message_bytes_max: MessageBytesMax = None,
    clear: ClearLimits = False,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Show a user's limits, or set all of them.

    Limits that you omit are removed.
    """
    wanted = {
        "connections_max": connections_max,
        "streams_max": streams_max,
        "publish_rate": publish_rate,
        "publish_bytes_rate": publish_bytes_rate,
        "in_flight_bytes_max": in_flight_bytes_max,
        "message_bytes_max": message_bytes_max,
    }
    with connected(context, uri) as connection:
        if clear or any(value is not None for value in wanted.values()):
            connection.admin.set_user_limits(name, **wanted)
        found = connection.admin.get_user_limits(name)
    if output is Format.JSON:
        print_json(found)
    else:
        print_fields(asdict(found), output)
