"""`penstock status`: what the broker says of itself."""

from dataclasses import asdict

import typer

from penstock.cli.options import DEFAULT_URI, Json, Uri, connected
from penstock.cli.output import print_fields, print_json

__all__ = ["status"]


def status(context: typer.Context, uri: Uri = DEFAULT_URI, is_json: Json = False) -> None:
    """Show the broker's version, load, counts and last recovery."""
    with connected(context, uri) as connection:
        found = connection.admin.status()
    if is_json:
        print_json(found)
    else:
        print_fields(asdict(found))
