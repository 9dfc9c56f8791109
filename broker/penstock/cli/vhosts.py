"""`penstock vhost`: list, add and delete virtual hosts."""

import typer

from penstock.cli.options import DEFAULT_URI, Json, Uri, connected
from penstock.cli.output import print_done, print_records

__all__ = ["app"]

app = typer.Typer(help="Virtual hosts.", no_args_is_help=True)
COLUMNS = ("name", "directory", "ready_count", "unsettled_count")


@app.command("list")
def show(context: typer.Context, uri: Uri = DEFAULT_URI, is_json: Json = False) -> None:
    """List the virtual hosts."""
    with connected(context, uri) as connection:
        print_records(connection.list_vhosts(), COLUMNS, is_json)


@app.command()
def add(context: typer.Context, name: str, uri: Uri = DEFAULT_URI, is_json: Json = False) -> None:
    """Make a virtual host, if it is not there."""
    with connected(context, uri) as connection:
        created = connection.create_vhost(name)
    print_done(f"vhost '{name}' {'added' if created else 'was there'}", {"name": name, "created": created}, is_json)


@app.command()
def delete(context: typer.Context, name: str, uri: Uri = DEFAULT_URI, is_json: Json = False) -> None:
    """Delete a virtual host with everything in it."""
    with connected(context, uri) as connection:
        connection.delete_vhost(name)
    print_done(f"vhost '{name}' deleted", {"name": name}, is_json)
