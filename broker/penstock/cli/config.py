"""`penstock config`: the settings that a broker would start with."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.context_file import PASSWORD
from penstock.cli.group import Commands
from penstock.cli.output import Format, Output, print_json, print_rows

__all__ = ["app"]

app = Commands(help="Show a broker's settings.")
COLUMNS = ("setting", "value", "from")


@app.callback()
def settings() -> None:
    """Show a broker's settings."""


@app.command()
def show(
    config: Annotated[Path | None, typer.Option("--config", help="A TOML file of settings.")] = None,
    output: Output = None,
) -> None:
    """Show every setting and its source."""
    node = import_module("penstock.node")
    found, origins = node.load_with_origins(config)
    shown = [(name, _shown(value), origins.get(name, "default")) for name, value in found]
    if output is Format.JSON:
        print_json([dict(zip(COLUMNS, row, strict=True)) for row in shown])
    else:
        rows = [(name, None if value is None else str(value), origin) for name, value, origin in shown]
        print_rows(rows, COLUMNS, output)


def _shown(value: Any) -> Any:
    """Return a value with secrets, and passwords in addresses, as stars."""
    if isinstance(value, str):
        return PASSWORD.sub(r"\1:***@", value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)
