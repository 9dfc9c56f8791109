"""`penstock queue`: list, declare, delete and purge queues; look at and move messages; list and release leases."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from penstock.cli import peeking, queue_list
from penstock.cli.group import Commands
from penstock.cli.options import Arguments, IfEmpty, IfUnused, QueueName, Uri, connected, read_fields
from penstock.cli.output import Format, Output, counted, print_done, print_json, print_rows

__all__ = ["app"]

app = Commands(help="Manage queues.")
app.command("list")(queue_list.show)
app.command("peek")(peeking.peek)
app.command("move")(peeking.move)
LEASE_COLUMNS = ("owner", "lease", "message_count", "bytes", "reserved_at", "acked")


@app.command()
def declare(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The queue; default: the broker chooses.")] = "",
    durable: Annotated[bool, typer.Option("--durable/--transient", help="Survive a restart.")] = True,
    auto_delete: Annotated[bool, typer.Option("--auto-delete", help="Delete it with its last consumer.")] = False,
    dedicated: Annotated[bool, typer.Option("--dedicated", help="Give it a log of its own.")] = False,
    max_priority: Annotated[
        int | None, typer.Option("--max-priority", help="Deliver by priority, up to this one (0 to 255).")
    ] = None,
    fair_key: Annotated[
        str | None, typer.Option("--fair-key", help="Deliver by turns of the values of this header.")
    ] = None,
    max_length: Annotated[int | None, typer.Option("--max-length", help="Messages that make it full.")] = None,
    max_bytes: Annotated[int | None, typer.Option("--max-bytes", help="Bytes of bodies that make it full.")] = None,
    overflow: Annotated[
        str | None, typer.Option("--overflow", help="drop-head (default), reject-publish[-dlx].")
    ] = None,
    expires: Annotated[
        int | None, typer.Option("--expires", help="Delete it when unused for so many milliseconds.")
    ] = None,
    argument: Arguments = None,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Declare a queue."""
    named = {
        "x-max-priority": max_priority,
        "x-fair-key": fair_key,
        "x-max-length": max_length,
        "x-max-length-bytes": max_bytes,
        "x-overflow": overflow,
        "x-expires": expires,
    }
    with connected(context, uri) as connection:
        arguments = read_fields(argument) | ({"x-dedicated": True} if dedicated else {})
        arguments |= {name: value for name, value in named.items() if value is not None}
        queue = connection.declare_queue(name, durable, auto_delete=auto_delete, arguments=arguments)
    text = f"queue '{queue.name}' declared: {queue.ready_count:,} ready, {queue.consumer_count:,} consumers"
    print_done(text, queue, output)


@app.command()
def delete(
    context: typer.Context,
    name: QueueName,
    if_unused: IfUnused = False,
    if_empty: IfEmpty = False,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Delete a queue and its messages."""
    with connected(context, uri) as connection:
        dropped = connection.delete_queue(name, if_unused, if_empty)
    print_done(f"queue '{name}' deleted with {counted(dropped, 'message')}", {"dropped_count": dropped}, output)


@app.command()
def purge(context: typer.Context, name: QueueName, uri: Uri = None, output: Output = None) -> None:
    """Delete the ready messages of a queue."""
    with connected(context, uri) as connection:
        dropped = connection.purge_queue(name)
    print_done(f"{counted(dropped, 'message')} deleted from queue '{name}'", {"dropped_count": dropped}, output)


@app.command()
def leases(context: typer.Context, name: QueueName, uri: Uri = None, output: Output = None) -> None:
    """List the leases of a queue."""
    with connected(context, uri) as connection:
        found = connection.admin.list_leases(name)
    if output is Format.JSON:
        print_json(found)
        return
    rows: list[tuple[object, ...]] = []
    for owner in found.owners:
        for lease in owner.leases:
            at = datetime.fromtimestamp(lease.reserved_at_ms / 1_000, UTC).isoformat(timespec="seconds")
            rows.append((owner.owner, lease.lease, lease.message_count, lease.bytes, at, owner.acked))
        if not owner.leases:
            rows.append((owner.owner, "", "", "", "", owner.acked))
    print_rows(rows, LEASE_COLUMNS, output)


@app.command("release-leases")
def release_leases(
    context: typer.Context,
    name: QueueName,
    owner: Annotated[str, typer.Argument(help="Lease owner; it must no longer run.")],
    first: Annotated[int, typer.Option("--from", min=0, help="First lease; 0: all, and forget the owner.")] = 0,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Return an owner's leases to the queue."""
    with connected(context, uri) as connection:
        released = connection.release_leases(name, owner, first)
    print_done(f"{counted(released, 'message')} of '{owner}' ready again", {"released_count": released}, output)
