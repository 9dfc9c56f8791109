"""`penstock vhost`: list, add and delete virtual hosts."""

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.options import DEFAULT_URI, Json, Uri, connected
from penstock.cli.output import print_done, print_fields, print_json, print_records

__all__ = ["app"]

app = typer.Typer(help="Virtual hosts.", no_args_is_help=True)
COLUMNS = ("name", "directory", "ready_count", "unsettled_count")


@app.command("list")
def show(context: typer.Context, uri: Uri = DEFAULT_URI, is_json: Json = False) -> None:
    """List the virtual hosts."""
    with connected(context, uri) as connection:
        print_records(connection.admin.list_vhosts(), COLUMNS, is_json)


@app.command()
def add(context: typer.Context, name: str, uri: Uri = DEFAULT_URI, is_json: Json = False) -> None:
    """Make a virtual host, if it is not there."""
    with connected(context, uri) as connection:
        created = connection.admin.create_vhost(name)
    print_done(f"vhost '{name}' {'added' if created else 'was there'}", {"name": name, "created": created}, is_json)


@app.command()
def delete(context: typer.Context, name: str, uri: Uri = DEFAULT_URI, is_json: Json = False) -> None:
    """Delete a virtual host with everything in it."""
    with connected(context, uri) as connection:
        connection.admin.delete_vhost(name)
    print_done(f"vhost '{name}' deleted", {"name": name}, is_json)


@app.command()
def limits(
    context: typer.Context,
    name: str,
    max_queues: Annotated[int | None, typer.Option("--max-queues", min=0)] = None,
    max_connections: Annotated[int | None, typer.Option("--max-connections", min=0)] = None,
    publish_rate: Annotated[int | None, typer.Option("--publish-rate", min=1, help="Messages a second.")] = None,
    publish_bytes_rate: Annotated[int | None, typer.Option("--publish-bytes-rate", min=1, help="A second.")] = None,
    max_in_flight_bytes: Annotated[int | None, typer.Option("--max-in-flight-bytes", min=1)] = None,
    max_message_bytes: Annotated[int | None, typer.Option("--max-message-bytes", min=0)] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Take all limits away.")] = False,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Show a virtual host's limits, or set all of them; those you omit are removed."""
    wanted = {
        "queues_max": max_queues,
        "connections_max": max_connections,
        "publish_rate": publish_rate,
        "publish_bytes_rate": publish_bytes_rate,
        "in_flight_bytes_max": max_in_flight_bytes,
        "message_bytes_max": max_message_bytes,
    }
    with connected(context, uri) as connection:
        if clear or any(value is not None for value in wanted.values()):
            connection.admin.set_vhost_limits(name, **wanted)
        found = connection.admin.get_vhost_limits(name)
    if is_json:
        print_json(found)
    else:
        print_fields(asdict(found))
