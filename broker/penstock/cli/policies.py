"""`penstock policy`: settings for every exchange or queue whose name matches, in force as soon as they are set."""

from typing import Annotated

import typer

from penstock.cli.group import Commands
from penstock.cli.options import PolicyName, Uri, connected, read_fields
from penstock.cli.output import Output, print_done, print_records

__all__ = ["app"]

app = Commands(help="Manage policies.")
COLUMNS = ("name", "pattern", "apply_to", "priority", "definition")

Operator = Annotated[bool, typer.Option("--operator", help="An operator policy, which limits the others.")]


@app.command("list")
def show(
    context: typer.Context,
    operator: Annotated[bool, typer.Option("--operator", help="List operator policies instead.")] = False,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """List policies."""
    with connected(context, uri) as connection:
        print_records(connection.admin.list_policies(operator), COLUMNS, output)


@app.command("set")
def put(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The policy.")],
    pattern: Annotated[str, typer.Argument(help="Regular expression; anchor it with ^ and $.")],
    definition: Annotated[list[str], typer.Argument(help="KEY=VALUE, as in durability=disk.")],
    apply_to: Annotated[
        str, typer.Option("--apply-to", help="all, exchanges, queues, streams, classic_ or quorum_queues.")
    ] = "all",
    priority: Annotated[int, typer.Option("--priority", help="The matching policy with the highest one applies.")] = 0,
    operator: Operator = False,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Add or replace a policy."""
    with connected(context, uri) as connection:
        connection.admin.set_policy(name, pattern, read_fields(definition), apply_to, priority, operator)
    print_done(f"policy '{name}' set", {"name": name}, output)


@app.command()
def delete(
    context: typer.Context, name: PolicyName, operator: Operator = False, uri: Uri = None, output: Output = None
) -> None:
    """Delete a policy."""
    with connected(context, uri) as connection:
        connection.admin.delete_policy(name, operator)
    print_done(f"policy '{name}' deleted", {"name": name}, output)
