"""Output of commands: JSON for programs, columns for pipes, tables and sentences for people.

Results go to stdout, everything else to stderr.
"""

import json
import re
import sys
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, is_dataclass
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = [
    "Format",
    "Output",
    "counted",
    "print_done",
    "print_fields",
    "print_json",
    "print_note",
    "print_records",
    "print_rows",
    "progress",
    "visible",
]


WIDE = 1_000
# What JSON leaves as it is, and a terminal may obey.
_CONTROLS = re.compile(r"[\x7f-\x9f]")


class Format(StrEnum):
    """How results are printed. Without one it is a table on a terminal and plain in a pipe."""

    TABLE = "table"
    PLAIN = "plain"
    JSON = "json"


Output = Annotated[
    Format | None,
    typer.Option("--output", "-o", help="Format of results; default: table, plain in a pipe.", show_default=False),
]


def print_json(value: Any) -> None:
    """Print one JSON text and a line end. Records become objects, bytes base64."""
    text = json.dumps(value, default=_plain, ensure_ascii=False)
    sys.stdout.write(_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 message`, `2,000 messages`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def print_done(sentence: str, value: Any, output: Format | None) -> None:
    """Print what a command that changes something ends with."""
    if output is Format.JSON:
        print_json(value)
    else:
        sys.stdout.write(visible(sentence) + "\n")


def print_note(sentence: str) -> None:
    """Print a line to stderr."""
    sys.stderr.write(visible(sentence) + "\n")


def visible(text: str) -> str:
    """Return a text in which control characters are escapes.

    Another user may have chosen a name, and its control characters must not reach the terminal.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


def print_records(records: Sequence[Any], columns: Sequence[str], output: Format | None) -> None:
    """Print records as a JSON array, or some of their fields as columns."""
    if output is Format.JSON:
        print_json(records)
        return
    print_rows([[getattr(record, column) for column in columns] for record in records], columns, output)


def print_rows(rows: Iterable[Sequence[Any]], columns: Sequence[str], output: Format | None = None) -> None:
    """Print columns: in a pipe bare numbers and words, `-` for nothing, two spaces apart."""
    if is_plain(output):
        _print_plain([columns, *([_bare(value) for value in row] for row in rows)])
        return
    from rich.table import Table

    table = Table()
    cells = [list(map(_cell, row)) for row in rows]
    # Few definitions have arguments, and an empty column takes the room of names.
    shown = [at for at, name in enumerate(columns) if name != "arguments" or any(row[at] for row in cells)]
    for at in shown:
        # A name must be complete, on a narrow terminal on several lines; a heading breaks between words.
        table.add_column(columns[at].replace("_", " "), overflow="fold")
    for row in cells:
        table.add_row(*(row[at] for at in shown))
    _print(table)


def print_fields(fields: Mapping[str, Any] | Iterable[tuple[str, Any]], output: Format | None = None) -> None:
    """Print names and values, one a line."""
    if is_plain(output):
        _print_plain([(name, _bare(value)) for name, value in dict(fields).items()])
        return
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for name, value in dict(fields).items():
        table.add_row(name, _cell(value))
    _print(table)


def is_plain(output: Format | None) -> bool:
    """Return whether programs read the output, not people."""
    return output is Format.PLAIN or (output is None and not sys.stdout.isatty())


def progress(output: Format | None) -> "AbstractContextManager[Progress | None]":
    """Return a progress bar on stderr for work that takes long, if a person watches."""
    if output is Format.JSON or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console
    from rich.progress import Progress

    return Progress(console=Console(stderr=True), transient=True)


def _print(table: Any) -> None:
    from rich.console import Console

    # What is piped as a table all the same must not be cut for the width of a pipe.
    Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else WIDE).print(table)


def _print_plain(lines: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (value.ljust(width) for value, width in zip(line, widths, strict=True))
        sys.stdout.write("  ".join(padded).rstrip() + "\n")


def _bare(value: Any) -> str:
    """Return a value as one word where it can be one."""
    if value is None or value in ("", (), [], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return visible(json.dumps(dict(value), default=_plain, ensure_ascii=False, separators=(",", ":")))
    if isinstance(value, list | tuple):
        return ",".join(_bare(item) for item in value)
    return visible(" ".join(str(value).split()))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, Mapping):
        return " ".join(f"{visible(name)}={_cell(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_cell(item) for item in value)
    return visible(str(value))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON")
