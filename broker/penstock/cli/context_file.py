"""The file of contexts: named brokers in $XDG_CONFIG_HOME/penstock/contexts.toml, which only its owner may read."""

import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["PASSWORD", "Context", "Contexts", "complete_contexts", "find", "load", "save"]

# A password may contain '@': the last one before the host ends it.
PASSWORD = re.compile(r"(?<=://)([^:@/]*):[^/?]*@")
OTHERS_READ = 0o044
OTHERS_WRITE = 0o022
_NEEDS_ESCAPE = re.compile(r'[\x00-\x1f"\\\x7f]')


@dataclass(frozen=True, slots=True)
class Context:
    """A named broker."""

    uri: str
    password_file: str | None = None


@dataclass(slots=True)
class Contexts:
    """The contents of the file; `current` is the context that commands use if none is named."""

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
        raise ValueError(f"no context '{chosen}' in {path()}; known contexts: {known}")
    return contexts.named[chosen]


def load() -> Contexts:
    """Read the file; raise ValueError if it cannot be understood. Without a folder for it there are no contexts."""
    if _folder() is None:
        return Contexts()
    try:
        with path().open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            document = tomllib.loads(file.read())
    except FileNotFoundError:
        return Contexts()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path()} is not TOML: {error}; correct or delete it") from error
    current = document.get("current")
    if not isinstance(current, str | None):
        raise ValueError(f"{path()} has a 'current' that is not text; correct or delete it")
    try:
        named = {name: _context(each) for name, each in _tables(document)}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path()} has a context without a uri, or not as text; correct or delete it") from error
    _check_mode(mode, named)
    return Contexts(current, named)


def _context(table: dict[str, Any]) -> Context:
    """Return what a table says; raise KeyError or TypeError."""
    uri, password_file = table["uri"], table.get("password_file")
    if not isinstance(uri, str) or not isinstance(password_file, str | None):
        raise TypeError
    return Context(uri, password_file)


def _check_mode(mode: int, named: dict[str, Context]) -> None:
    """Raise ValueError if others can send commands and passwords to a broker of theirs, or read a password."""
    has_password = any(PASSWORD.search(each.uri) for each in named.values())
    if mode & (OTHERS_WRITE | (OTHERS_READ if has_password else 0)):
        verb = "change" if mode & OTHERS_WRITE else "read"
        raise ValueError(f"{path()} has brokers or passwords that other users can {verb}; run chmod 600 {path()}")


def complete_contexts(incomplete: str) -> list[str]:
    """Return the names of contexts that begin like this."""
    try:
        return [name for name in sorted(load().named) if name.startswith(incomplete)]
    except (OSError, ValueError):
        return []


def _tables(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return list(document.get("contexts", {}).items())


def path() -> Path:
    """Return the file's path; raise ValueError if no folder for it is known."""
    folder = _folder()
    if folder is None:
        raise ValueError("contexts have no folder, since the user has no home directory; set XDG_CONFIG_HOME")
    return folder / "penstock" / "contexts.toml"


def _folder() -> Path | None:
    """Return the folder of configuration files; None for a user without one, as in a container."""
    if folder := os.environ.get("XDG_CONFIG_HOME"):
        return Path(folder)
    try:
        return Path.home() / ".config"
    except RuntimeError:
        return None


def save(contexts: Contexts) -> None:
    """Replace the file as a whole; other users cannot read it at any time."""
    file = path()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600, exist_ok=False)
    new.write_text(_written(contexts), encoding="utf-8")
    new.replace(file)


def _written(contexts: Contexts) -> str:
    """Return the file's TOML."""
    lines = [] if contexts.current is None else [f"current = {_quoted(contexts.current)}"]
    for name, each in sorted(contexts.named.items()):
        lines += ["", f'[contexts."{name}"]', f"uri = {_quoted(each.uri)}"]
        if each.password_file is not None:
            lines.append(f"password_file = {_quoted(each.password_file)}")
    return "\n".join(lines).lstrip("\n") + "\n"


def _quoted(text: str) -> str:
    """Return a TOML string. Unlike JSON, TOML has no surrogates and escapes DEL."""
    return '"' + _NEEDS_ESCAPE.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + '"'
