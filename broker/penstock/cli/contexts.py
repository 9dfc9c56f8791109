"""`penstock context`: names for brokers, in $XDG_CONFIG_HOME/penstock/contexts.toml, which only its owner may read.

A context is a URI, and perhaps a file with the password. `--context NAME` uses one for a command, `context use` always.
"""

import re
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.context_file import PASSWORD, Context, complete_contexts, find, load, save
from penstock.cli.group import Commands
from penstock.cli.output import Format, Output, print_done, print_json, print_rows

__all__ = ["app"]

app = Commands(help="Manage named brokers.")
COLUMNS = ("name", "current", "uri", "password_file")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


Name = Annotated[str, typer.Argument(help="The context.", autocompletion=complete_contexts)]


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="The context's name.")],
    uri: Annotated[str, typer.Argument(help="The broker's URI, best without a password.")],
    password_file: Annotated[
        Path | None, typer.Option("--password-file", help="A file whose first line is the password.")
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Make it the current context.")] = False,
    output: Output = None,
) -> None:
    """Add a context, or change one."""
    from penstock.client.uri import parse_uri

    if not _NAME.fullmatch(name):
        raise ValueError(f"a context cannot be named '{name}'; use letters, digits, '.', '_' and '-'")
    parse_uri(uri)
    contexts = load()
    contexts.named[name] = Context(uri, None if password_file is None else str(password_file.absolute()))
    if use or contexts.current is None:
        contexts.current = name
    save(contexts)
    is_current = contexts.current == name
    print_done(
        f"context '{name}' added{' and in use' if is_current else ''}", {"name": name, "current": is_current}, output
    )


@app.command()
def use(name: Name, output: Output = None) -> None:
    """Use a context from now on."""
    find(name)
    contexts = load()
    contexts.current = name
    save(contexts)
    print_done(f"context '{name}' in use", {"name": name}, output)


@app.command("list")
def show(output: Output = None) -> None:
    """List the contexts; passwords are hidden."""
    contexts = load()
    rows = [
        (name, name == contexts.current, _hidden(each.uri), each.password_file)
        for name, each in sorted(contexts.named.items())
    ]
    if output is Format.JSON:
        print_json([dict(zip(COLUMNS, row, strict=True)) for row in rows])
    else:
        print_rows(rows, COLUMNS, output)


@app.command()
def remove(name: Name, output: Output = None) -> None:
    """Remove a context."""
    find(name)
    contexts = load()
    del contexts.named[name]
    if contexts.current == name:
        contexts.current = None
    save(contexts)
    print_done(f"context '{name}' removed", {"name": name}, output)


def _hidden(uri: str) -> str:
    return PASSWORD.sub(r"\1:***@", uri)
