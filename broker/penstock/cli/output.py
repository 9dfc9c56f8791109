"""What commands print: JSON for programs, tables and sentences for people. Results go to stdout, all else to stderr."""

import json
import sys
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, is_dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["print_done", "print_fields", "print_json", "print_note", "print_records", "print_rows", "progress"]


def print_json(value: Any) -> None:
    """One JSON text and a line end. Records become objects, bytes base64."""
    sys.stdout.write(json.dumps(value, default=_plain, ensure_ascii=False) + "\n")


def print_done(sentence: str, value: Any, is_json: bool) -> None:
    """What a command that changes something ends with."""
    if is_json:
        print_json(value)
    else:
        sys.stdout.write(sentence + "\n")


def print_note(sentence: str) -> None:
    sys.stderr.write(sentence + "\n")


def print_records(records: Sequence[Any], columns: Sequence[str], is_json: bool) -> None:
    """Records as a JSON array, or as a table of some of their fields."""
    if is_json:
        print_json(records)
        return
    print_rows([[getattr(record, column) for column in columns] for record in records], columns)


def print_rows(rows: Iterable[Sequence[Any]], columns: Sequence[str]) -> None:
    """A table for people."""
    from rich.table import Table

    table = Table(*columns)
    for row in rows:
        table.add_row(*map(_cell, row))
    _print(table)


def print_fields(fields: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
    """Names and values, one a line."""
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for name, value in dict(fields).items():
        table.add_row(name, _cell(value))
    _print(table)


def progress(is_json: bool) -> "AbstractContextManager[Progress | None]":
    """A progress bar on stderr for work that takes long, where somebody watches."""
    if is_json or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console
    from rich.progress import Progress

    return Progress(console=Console(stderr=True), transient=True)


def _print(table: Any) -> None:
    from rich.console import Console

    # A pipe has no width: lines must not be cut for its sake.
    Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 1_000).print(table)


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
        return " ".join(f"{name}={_cell(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_cell(item) for item in value)
    return str(value)


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
