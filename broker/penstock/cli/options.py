"""The options that commands share, and the connection they lead to.

A test puts its own `connect` into the context's `obj`; nothing else is ever there.
"""

import json
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer

import penstock

if TYPE_CHECKING:
    from penstock import Connection

__all__ = ["Arguments", "IfEmpty", "IfUnused", "Json", "Uri", "connected", "read_fields"]

DEFAULT_URI = "penstock://guest:guest@127.0.0.1:5680/"

Uri = Annotated[
    str,
    typer.Option(
        "--uri",
        envvar="PENSTOCK_URI",
        help="penstock://user:password@host:port/vhost, or penstocks:// for TLS",
        show_default=True,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print nothing but JSON on stdout.")]
Arguments = Annotated[
    list[str] | None,
    typer.Option("--argument", "-a", help="NAME=VALUE, more than once; a VALUE that is JSON is read so."),
]
IfUnused = Annotated[bool, typer.Option("--if-unused", help="Refuse while something uses it.")]
IfEmpty = Annotated[bool, typer.Option("--if-empty", help="Refuse while it holds messages.")]


def connected(context: typer.Context, uri: str, **options: Any) -> "AbstractContextManager[Connection]":
    """A connection to the broker at `uri`."""
    connect = context.obj or penstock.connect
    connection: Connection = connect(uri, **options)
    return connection


def read_fields(pairs: list[str] | None) -> dict[str, Any]:
    """NAME=VALUE pairs; what is JSON becomes what it says, everything else is text."""
    fields: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"'{pair}' is not NAME=VALUE")
        try:
            fields[name] = json.loads(text)
        except ValueError:
            fields[name] = text
    return fields
