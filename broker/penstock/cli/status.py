"""`penstock status`: what the broker says of itself."""

from dataclasses import asdict

import typer

from penstock.cli.options import Uri, connected
from penstock.cli.output import Format, Output, print_fields, print_json

__all__ = ["status"]


def status(context: typer.Context, uri: Uri = None, output: Output = None) -> None:
    """Show a broker's version, load and counts."""
    with connected(context, uri) as connection:
        found = connection.admin.status()
    if output is Format.JSON:
        print_json(found)
    else:
        print_fields(asdict(found), output)
