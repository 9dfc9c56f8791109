"""`penstock vhost`: list, add and delete virtual hosts."""

from dataclasses import asdict
from typing import Annotated

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
    VhostName,
    connected,
)
from penstock.cli.output import Format, Output, print_done, print_fields, print_json, print_records

__all__ = ["app"]

app = Commands(help="Manage virtual hosts.")
COLUMNS = ("name", "directory", "shards", "default_queue_type", "ready_count", "unacked_count")


@app.command("list")
def show(context: typer.Context, uri: Uri = None, output: Output = None) -> None:
    """List vhosts."""
    with connected(context, uri) as connection:
        print_records(connection.admin.list_vhosts(), COLUMNS, output)


@app.command()
def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The vhost.")],
    shards: Annotated[int, typer.Option("--shards", min=1, help="Logs that its queues share.")] = 1,
    default_queue_type: Annotated[
        str | None, typer.Option("--default-queue-type", help="classic (default), quorum or stream.")
    ] = None,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Add a vhost."""
    with connected(context, uri) as connection:
        created = connection.admin.create_vhost(name, shards, default_queue_type)
    print_done(f"vhost '{name}' {'added' if created else 'exists already'}", {"name": name, "created": created}, output)


@app.command("set-shards")
def set_shards(
    context: typer.Context,
    name: VhostName,
    shards: Annotated[int, typer.Argument(min=1, help="Logs that its queues share.")],
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Add shards to a vhost; there are never fewer."""
    with connected(context, uri) as connection:
        connection.admin.set_vhost_shards(name, shards)
    print_done(f"vhost '{name}' has {shards} shards", {"name": name, "shards": shards}, output)


@app.command("set-default-queue-type")
def set_default_queue_type(
    context: typer.Context,
    name: VhostName,
    queue_type: Annotated[str, typer.Argument(help="classic, quorum or stream.")],
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Set the type of queues declared without one."""
    with connected(context, uri) as connection:
        connection.admin.set_default_queue_type(name, queue_type)
    fields = {"name": name, "default_queue_type": queue_type}
    print_done(f"vhost '{name}' has the default queue type '{queue_type}'", fields, output)


@app.command()
def delete(context: typer.Context, name: VhostName, uri: Uri = None, output: Output = None) -> None:
    """Delete a vhost with everything in it."""
    with connected(context, uri) as connection:
        connection.admin.delete_vhost(name)
    print_done(f"vhost '{name}' deleted", {"name": name}, output)


@app.command()
def limits(
    context: typer.Context,
    name: VhostName,
    queues_max: Annotated[int | None, typer.Option("--queues-max", min=0, help="Most queues.")] = None,
    connections_max: ConnectionsMax = None,
    publish_rate: PublishRate = None,
    publish_bytes_rate: PublishBytesRate = None,
    in_flight_bytes_max: InFlightBytesMax = None,
    message_bytes_max: MessageBytesMax = None,
    clear: ClearLimits = False,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Show a vhost's limits, or set all of them.

    Limits that you omit are removed.
    """
    wanted = {
        "queues_max": queues_max,
        "connections_max": connections_max,
        "publish_rate": publish_rate,
        "publish_bytes_rate": publish_bytes_rate,
        "in_flight_bytes_max": in_flight_bytes_max,
        "message_bytes_max": message_bytes_max,
    }
    with connected(context, uri) as connection:
        if clear or any(value is not None for value in wanted.values()):
            connection.admin.set_vhost_limits(name, **wanted)
        found = connection.admin.get_vhost_limits(name)
    if output is Format.JSON:
        print_json(found)
    else:
        print_fields(asdict(found), output)
