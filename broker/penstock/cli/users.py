"""`penstock user`: list, add, change and delete users. A password that is not given is asked for, never shown."""

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.options import DEFAULT_URI, Json, Uri, connected
from penstock.cli.output import print_done, print_fields, print_json, print_records

__all__ = ["app"]

app = typer.Typer(help="Users.", no_args_is_help=True)
COLUMNS = ("name", "tags")


@app.command("list")
def show(context: typer.Context, uri: Uri = DEFAULT_URI, is_json: Json = False) -> None:
    """List the users."""
    with connected(context, uri) as connection:
        print_records(connection.admin.list_users(), COLUMNS, is_json)


Password = Annotated[str | None, typer.Option("--password", help="Asked for when omitted; others see it in `ps`.")]
FromStdin = Annotated[bool, typer.Option("--password-stdin", help="Read the password from standard input.")]
Force = Annotated[bool, typer.Option("--force", help="Even if no administrator is left.")]


@app.command()
def add(
    context: typer.Context,
    name: str,
    password: Password = None,
    password_stdin: FromStdin = False,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="Such as administrator; repeatable.")] = None,
    clear_tags: Annotated[bool, typer.Option("--clear-tags", help="Remove all tags.")] = False,
    keep_password: Annotated[bool, typer.Option("--keep-password", help="Change only the tags.")] = False,
    force: Force = False,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Add a user, or change a user's password and tags."""
    chosen = None if keep_password else _password(password, password_stdin)
    tags = [] if clear_tags else tag or None
    with connected(context, uri) as connection:
        created = connection.admin.put_user(name, chosen, tags, force=force)
    print_done(f"user '{name}' {'added' if created else 'changed'}", {"name": name, "created": created}, is_json)


@app.command("set-password")
def set_password(
    context: typer.Context,
    name: str,
    password: Password = None,
    password_stdin: FromStdin = False,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Change the password of a user."""
    chosen = _password(password, password_stdin)
    with connected(context, uri) as connection:
        if name not in {user.name for user in connection.admin.list_users()}:
            raise ValueError(f"user '{name}' not found; add it with `penstock user add {name}`")
        connection.admin.put_user(name, chosen)
    print_done(f"password of user '{name}' changed", {"name": name}, is_json)


def _password(given: str | None, from_stdin: bool) -> str:
    """The password that was given, read or asked for."""
    if given is not None and from_stdin:
        raise typer.BadParameter("cannot be combined with --password-stdin", param_hint="--password")
    if from_stdin:
        given = sys.stdin.readline().rstrip("\r\n")
    elif given is None:
        given = typer.prompt("Password", hide_input=True, confirmation_prompt="Again", err=True)
    if not given:
        hint = "--password-stdin" if from_stdin else "--password"
        raise typer.BadParameter("the password is empty", param_hint=hint)
    return given


@app.command()
def delete(
    context: typer.Context, name: str, force: Force = False, uri: Uri = DEFAULT_URI, is_json: Json = False
) -> None:
    """Delete a user with their permissions."""
    with connected(context, uri) as connection:
        connection.admin.delete_user(name, force=force)
    print_done(f"user '{name}' deleted", {"name": name}, is_json)


@app.command()
def limits(
    context: typer.Context,
    name: str,
    max_connections: Annotated[int | None, typer.Option("--max-connections", min=0)] = None,
    max_streams: Annotated[int | None, typer.Option("--max-streams", min=0, help="That publish or consume.")] = None,
    publish_rate: Annotated[int | None, typer.Option("--publish-rate", min=1, help="Messages a second.")] = None,
    publish_bytes_rate: Annotated[int | None, typer.Option("--publish-bytes-rate", min=1, help="A second.")] = None,
    max_in_flight_bytes: Annotated[int | None, typer.Option("--max-in-flight-bytes", min=1)] = None,
    max_message_bytes: Annotated[int | None, typer.Option("--max-message-bytes", min=0)] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Take all limits away.")] = False,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Show a user's limits, or set all of them; those you omit are removed."""
    wanted = {
        "connections_max": max_connections,
        "streams_max": max_streams,
        "publish_rate": publish_rate,
        "publish_bytes_rate": publish_bytes_rate,
        "in_flight_bytes_max": max_in_flight_bytes,
        "message_bytes_max": max_message_bytes,
    }
    with connected(context, uri) as connection:
        if clear or any(value is not None for value in wanted.values()):
            connection.admin.set_user_limits(name, **wanted)
        found = connection.admin.get_user_limits(name)
    if is_json:
        print_json(found)
    else:
        print_fields(asdict(found))
