"""`penstock policy`: settings for every exchange or queue whose name matches, in force as soon as they are set."""

from typing import Annotated

import typer

from penstock.cli.options import DEFAULT_URI, Json, Uri, connected, read_fields
from penstock.cli.output import print_done, print_records

__all__ = ["app"]

app = typer.Typer(help="Policies of the URI's vhost.", no_args_is_help=True)
COLUMNS = ("name", "pattern", "apply_to", "priority", "definition")

Operator = Annotated[bool, typer.Option("--operator", help="An operator's policy, which others cannot undercut.")]


@app.command("list")
def show(context: typer.Context, operator: Operator = False, uri: Uri = DEFAULT_URI, is_json: Json = False) -> None:
    """List the policies."""
    with connected(context, uri) as connection:
        print_records(connection.admin.list_policies(operator), COLUMNS, is_json)


@app.command("set")
def put(
    context: typer.Context,
    name: str,
    pattern: Annotated[
        str, typer.Argument(help="Regular expression, matched anywhere in the name; anchor it with ^ and $.")
    ],
    definition: Annotated[list[str], typer.Argument(help="KEY=VALUE, such as alternate-exchange=lost or level=disk.")],
    apply_to: Annotated[str, typer.Option("--apply-to", help="all, queues, streams or exchanges.")] = "all",
    priority: Annotated[int, typer.Option("--priority", help="The highest that matches counts.")] = 0,
    operator: Operator = False,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Set a policy, in place of one of that name."""
    with connected(context, uri) as connection:
        connection.admin.set_policy(name, pattern, read_fields(definition), apply_to, priority, operator)
    print_done(f"policy '{name}' is in force", {"name": name}, is_json)


@app.command()
def clear(
    context: typer.Context, name: str, operator: Operator = False, uri: Uri = DEFAULT_URI, is_json: Json = False
) -> None:
    """Take a policy away; what it had set ends."""
    with connected(context, uri) as connection:
        connection.admin.delete_policy(name, operator)
    print_done(f"policy '{name}' cleared", {"name": name}, is_json)
