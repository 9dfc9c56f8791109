"""`penstock config`: the settings that a broker would start with."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.options import Json
from penstock.cli.output import print_json, print_rows

__all__ = ["app"]

app = typer.Typer(help="Settings of a broker.", no_args_is_help=True)
COLUMNS = ("setting", "value", "from")


@app.callback()
def settings() -> None:
    """Settings of a broker."""


@app.command()
def show(
    config: Annotated[Path | None, typer.Option("--config", help="A TOML file of settings.")] = None,
    is_json: Json = False,
) -> None:
    """Show every setting, and where its value comes from."""
    node = import_module("penstock.node")
    found, origins = node.load_with_origins(config)
    shown = [(name, _shown(value), origins.get(name, "default")) for name, value in found]
    if is_json:
        print_json([dict(zip(COLUMNS, row, strict=True)) for row in shown])
    else:
        print_rows([(name, str(value), origin) for name, value, origin in shown], COLUMNS)


def _shown(value: Any) -> Any:
    """Secrets as stars."""
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
