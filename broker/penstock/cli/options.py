"""The options that commands share, the connection they lead to, and the names that a shell completes.

A test puts its own `connect` into the context's `obj`; nothing else is ever there.
"""

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from enum import StrEnum
from getpass import GetPassWarning
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import penstock
from penstock.cli import context_file

if TYPE_CHECKING:
    from penstock import Connection

__all__ = [
    "Arguments",
    "ClearLimits",
    "ConnectionsMax",
    "Durability",
    "DurabilityName",
    "ExchangeName",
    "IfEmpty",
    "IfUnused",
    "InFlightBytesMax",
    "MessageBytesMax",
    "PolicyName",
    "PublishBytesRate",
    "PublishRate",
    "QueueName",
    "Uri",
    "UserName",
    "VhostName",
    "address_of",
    "ask_password",
    "complete_connections",
    "complete_exchanges",
    "complete_queues",
    "complete_streams",
    "complete_users",
    "complete_vhosts",
    "connected",
    "connected_to",
    "read_fields",
]

COMPLETION_SECONDS = 1.0
DEFAULT_URI = "penstock://guest:guest@127.0.0.1:5680/"

Uri = Annotated[
    str | None,
    typer.Option(
        "--uri",
        envvar="PENSTOCK_URI",
        help="The broker: penstock://user@host:port/vhost.",
        metavar="URI",
        show_default=False,
    ),
]
Arguments = Annotated[
    list[str] | None,
    typer.Option("--argument", "-a", help="NAME=VALUE; repeatable. JSON values are parsed."),
]


class DurabilityName(StrEnum):
    """The guarantee of a confirm: the message is in the page cache, on the disk, or on those of all replicas."""

    OS = "os"
    DISK = "disk"
    REPLICATED = "replicated"


Durability = Annotated[
    DurabilityName | None,
    typer.Option("--durability", help="Guarantee of a confirm: page cache (os), disk or replicated."),
]
IfUnused = Annotated[bool, typer.Option("--if-unused", help="Only if nothing uses it.")]
IfEmpty = Annotated[bool, typer.Option("--if-empty", help="Only if it holds no ready messages.")]

ConnectionsMax = Annotated[int | None, typer.Option("--connections-max", min=0, help="Most connections.")]
PublishRate = Annotated[int | None, typer.Option("--publish-rate", min=1, help="Most published messages per second.")]
PublishBytesRate = Annotated[
    int | None, typer.Option("--publish-bytes-rate", min=1, help="Most published bytes per second.")
]
InFlightBytesMax = Annotated[
    int | None, typer.Option("--in-flight-bytes-max", min=1, help="Most unconfirmed bytes, and unacked ones.")
]
MessageBytesMax = Annotated[int | None, typer.Option("--message-bytes-max", min=0, help="Largest message.")]
ClearLimits = Annotated[bool, typer.Option("--clear", help="Remove all limits.")]


def connected(context: typer.Context, uri: str | None, **options: Any) -> "AbstractContextManager[Connection]":
    """Connect to the broker that the options name."""
    return connected_to(context, address_of(context, uri), **options)


def connected_to(context: typer.Context, address: str, **options: Any) -> "AbstractContextManager[Connection]":
    """Connect to the broker at a complete URI."""
    connect = context.obj or penstock.connect
    connection: Connection = connect(address, **options)
    return connection


def address_of(context: typer.Context, uri: str | None, *, may_ask: bool = True) -> str:
    """Return the URI to connect to, with its password.

    An option counts more than a variable, and a variable more than the current context. Raise ValueError if only a
    person could say the password and `may_ask` is false.
    """
    named, password_file = context.params.get("named"), context.params.get("password_file")
    source = context.get_parameter_source("uri")
    if named and source is not None and source.name == "COMMANDLINE":
        raise typer.BadParameter("cannot be combined with --uri", param_hint="--context")
    if uri is None or named:
        found = context_file.find(named or os.environ.get("PENSTOCK_CONTEXT") or None)
        uri = DEFAULT_URI if found is None else found.uri
        password_file = password_file or (found.password_file if found else None)
    ask = ask_password if may_ask else _refuse
    return _with_password(uri, password_file, ask, asks=bool(context.params.get("asks_password")))


def ask_password(prompt: str, *, again: str | bool = False) -> str:
    """Ask on the terminal for a password; without a terminal that is wrong use, and Ctrl-C ends the command."""
    wanted = "--password-stdin" if again else "--password-file or PENSTOCK_PASSWORD"
    refusal = typer.BadParameter(f"there is no terminal to ask for it; use {wanted}", param_hint="password")
    if not has_terminal():  # asked before anything is printed
        raise refusal
    with warnings.catch_warnings():
        warnings.simplefilter("error", GetPassWarning)
        try:
            password: str = typer.prompt(prompt, hide_input=True, confirmation_prompt=again, err=True)
        except GetPassWarning:
            raise refusal from None
        except typer.Abort:
            sys.stderr.write("\n")
            raise KeyboardInterrupt from None
    return password


def has_terminal() -> bool:
    """Return whether a password can be typed without being shown, as `getpass` sees it."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return sys.stdin.isatty()
    return True


def _refuse(_: str) -> str:
    raise ValueError("the password is not known without a prompt; use --password-file or PENSTOCK_PASSWORD")


def _with_password(uri: str, password_file: Path | str | None, ask: Callable[[str], str], *, asks: bool) -> str:
    """Return the URI with the password that was asked for, that a file or PENSTOCK_PASSWORD has, or its own."""
    from penstock.client.uri import credentials_in, format_uri, parse_uri

    address = parse_uri(uri)
    user, written = credentials_in(uri)
    if asks:
        password = ask("Password")
    elif password_file is not None:
        password = Path(password_file).read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    elif written is None and "PENSTOCK_PASSWORD" in os.environ:
        password = os.environ["PENSTOCK_PASSWORD"]
    elif user is not None and written is None and sys.stdin.isatty():
        password = ask(f"Password of {user}")
    else:
        return uri
    return format_uri(replace(address, password=password))


def completed(names: "Callable[[Connection], Iterable[str]]") -> Callable[[typer.Context, str], list[str]]:
    """Return a completion by names that the broker knows.

    It is silent when the broker does not answer soon, and never asks for a password.
    """

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        try:
            address = address_of(context, context.params.get("uri"), may_ask=False)
            with connected_to(context, address, timeout=COMPLETION_SECONDS) as connection:
                return [name for name in names(connection) if name.startswith(incomplete)]
        except Exception:  # noqa: BLE001  (a shell that completes has no place for an error)
            return []

    return complete


complete_queues = completed(lambda connection: [each.name for each in connection.admin.list_queues()])
complete_streams = completed(lambda connection: [each.name for each in connection.admin.list_streams()])
complete_exchanges = completed(lambda connection: [each.name for each in connection.admin.list_exchanges()])
complete_vhosts = completed(lambda connection: [each.name for each in connection.admin.list_vhosts()])
complete_users = completed(lambda connection: [each.name for each in connection.admin.list_users()])
complete_connections = completed(lambda connection: [str(each.id) for each in connection.admin.list_connections()])
complete_policies = completed(lambda connection: [each.name for each in connection.admin.list_policies()])

QueueName = Annotated[str, typer.Argument(help="The queue.", autocompletion=complete_queues, show_default=False)]
ExchangeName = Annotated[str, typer.Argument(help="The exchange.", autocompletion=complete_exchanges)]
VhostName = Annotated[str, typer.Argument(help="The vhost.", autocompletion=complete_vhosts)]
UserName = Annotated[str, typer.Argument(help="The user.", autocompletion=complete_users)]
PolicyName = Annotated[str, typer.Argument(help="The policy.", autocompletion=complete_policies)]


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
