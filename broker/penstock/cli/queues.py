"""`penstock queue`: list, declare, delete and purge queues of the URI's vhost; see and release leases of them."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from penstock.cli.options import DEFAULT_URI, Arguments, IfEmpty, IfUnused, Json, Uri, connected, read_fields
from penstock.cli.output import print_done, print_json, print_records, print_rows

__all__ = ["app"]

app = typer.Typer(help="Queues of the URI's vhost.", no_args_is_help=True)
LEASE_COLUMNS = ("owner", "lease", "message_count", "bytes", "reserved_at", "acked")
COLUMNS = (
    "name",
    "type",
    "durable",
    "exclusive",
    "auto_delete",
    "arguments",
    "ready_count",
    "unsettled_count",
    "consumer_count",
)


@app.command("list")
def show(context: typer.Context, uri: Uri = DEFAULT_URI, is_json: Json = False) -> None:
    """List the queues and what they hold."""
    with connected(context, uri) as connection:
        print_records(connection.admin.list_queues(), COLUMNS, is_json)


@app.command()
def declare(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Empty: the broker chooses one.")] = "",
    durable: Annotated[bool, typer.Option("--durable/--transient")] = True,
    auto_delete: Annotated[bool, typer.Option("--auto-delete", help="Gone with its last consumer.")] = False,
    dedicated: Annotated[bool, typer.Option("--dedicated", help="With a log of its own.")] = False,
    argument: Arguments = None,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Make a queue, or check that it is as asked."""
    with connected(context, uri) as connection:
        arguments = read_fields(argument) | ({"x-dedicated": True} if dedicated else {})
        queue = connection.declare_queue(name, durable, auto_delete=auto_delete, arguments=arguments)
    text = f"queue '{queue.name}' is there: {queue.ready_count:,} ready, {queue.consumer_count:,} consumers"
    print_done(text, queue, is_json)


@app.command()
def delete(
    context: typer.Context,
    name: str,
    if_unused: IfUnused = False,
    if_empty: IfEmpty = False,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Delete a queue with what it holds."""
    with connected(context, uri) as connection:
        dropped = connection.delete_queue(name, if_unused, if_empty)
    print_done(f"queue '{name}' deleted with {dropped:,} messages", {"dropped_count": dropped}, is_json)


@app.command()
def purge(context: typer.Context, name: str, uri: Uri = DEFAULT_URI, is_json: Json = False) -> None:
    """Drop the ready messages of a queue."""
    with connected(context, uri) as connection:
        dropped = connection.purge_queue(name)
    print_done(f"{dropped:,} messages dropped from queue '{name}'", {"dropped_count": dropped}, is_json)


@app.command()
def leases(context: typer.Context, name: str, uri: Uri = DEFAULT_URI, is_json: Json = False) -> None:
    """List who has reserved messages of a queue, under which numbers."""
    with connected(context, uri) as connection:
        found = connection.admin.list_leases(name)
    if is_json:
        print_json(found)
        return
    rows: list[tuple[object, ...]] = []
    for owner in found.owners:
        for lease in owner.leases:
            at = datetime.fromtimestamp(lease.reserved_at_ms / 1_000, UTC).isoformat(timespec="seconds")
            rows.append((owner.owner, lease.lease, lease.message_count, lease.bytes, at, owner.acked))
        if not owner.leases:
            rows.append((owner.owner, "", "", "", "", owner.acked))
    print_rows(rows, LEASE_COLUMNS)


@app.command("release-leases")
def release_leases(
    context: typer.Context,
    name: str,
    owner: Annotated[str, typer.Argument(help="Lease owner; make sure it is no longer running.")],
    first: Annotated[
        int, typer.Option("--from", min=0, help="This lease and those behind it. 0: all, and the owner is forgotten.")
    ] = 0,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Give an owner's reserved messages back to the queue."""
    with connected(context, uri) as connection:
        released = connection.release_leases(name, owner, first)
    print_done(f"{released:,} messages of '{owner}' are ready again", {"released_count": released}, is_json)
