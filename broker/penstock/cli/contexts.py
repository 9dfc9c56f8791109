"""`penstock context`: names for brokers, in $XDG_CONFIG_HOME/penstock/contexts.toml, which only its owner may read.

A context is a URI, and perhaps a file with the password. `--context NAME` uses one for a command, `context use` always.
"""

import json
import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.group import Commands, complete_contexts
from penstock.cli.output import Format, Output, print_done, print_json, print_rows

__all__ = ["Context", "app", "find", "load"]

app = Commands(help="Manage named brokers.")
COLUMNS = ("name", "current", "uri", "password_file")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Context:
    """A named broker."""

    uri: str
    password_file: str | None = None


@dataclass(slots=True)
class Contexts:
    """What the file holds; `current` is the context that commands use if none is named."""

    current: str | None = None
    named: dict[str, Context] = field(default_factory=dict)


def find(name: str | None) -> Context | None:
    """Return the context of a name, or for None the current one if there is one; raise ValueError."""
    contexts = load()
    chosen = contexts.current if name is None else name
    if chosen is None:
        return None
    if chosen not in contexts.named:
        known = ", ".join(sorted(contexts.named)) or "none"
        raise ValueError(f"no context '{chosen}' in {_file()}; known contexts: {known}")
    return contexts.named[chosen]


def load() -> Contexts:
    """Read the file; raise ValueError if it cannot be understood."""
    try:
        document = tomllib.loads(_file().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Contexts()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{_file()} is not TOML: {error}; correct or delete it") from error
    try:
        named = {name: Context(each["uri"], each.get("password_file")) for name, each in _tables(document)}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{_file()} has a context without a uri; correct or delete it") from error
    return Contexts(document.get("current"), named)


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
    _save(contexts)
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
    _save(contexts)
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
    _save(contexts)
    print_done(f"context '{name}' removed", {"name": name}, output)


def _tables(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return list(document.get("contexts", {}).items())


def _file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "penstock" / "contexts.toml"


def _save(contexts: Contexts) -> None:
    """Replace the file as a whole; nobody else may read it at any time."""
    file = _file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600, exist_ok=False)
    new.write_text(_written(contexts), encoding="utf-8")
    new.replace(file)


def _written(contexts: Contexts) -> str:
    """Return the file's TOML; its strings are written as those of JSON."""
    lines = [] if contexts.current is None else [f"current = {json.dumps(contexts.current)}"]
    for name, each in sorted(contexts.named.items()):
        lines += ["", f'[contexts."{name}"]', f"uri = {json.dumps(each.uri)}"]
        if each.password_file is not None:
            lines.append(f"password_file = {json.dumps(each.password_file)}")
    return "\n".join(lines).lstrip("\n") + "\n"


def _hidden(uri: str) -> str:
    return re.sub(r"(://[^:@/]*:)[^@]*@", r"\1***@", uri)
