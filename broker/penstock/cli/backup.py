"""`penstock backup` and `penstock restore`: a copy of a running broker's data, and a new data directory of a copy."""

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import DEFAULT_URI, Json, Uri, connected
from penstock.cli.output import print_done

__all__ = ["backup", "restore"]

SECONDS_MAX = 3_600.0


def backup(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(help="Empty or new, on the broker's machine; a path from /.")],
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Copy everything the broker holds, while messages flow. For administrators."""
    with connected(context, uri, timeout=SECONDS_MAX) as connection:
        size = connection.admin.backup(str(directory))
    print_done(f"{size:,} bytes are in {directory}", {"directory": str(directory), "bytes": size}, is_json)


def restore(
    directory: Annotated[Path, typer.Argument(help="A backup.", exists=True, file_okay=False)],
    data_dir: Annotated[Path, typer.Option("--data-dir", help="The new data directory: empty or not there yet.")],
    is_json: Json = False,
) -> None:
    """Make a data directory of a backup. No broker is needed, and none may use the directory yet."""
    storage = import_module("penstock.storage")
    vhosts: list[str] = storage.restore_backup(directory, data_dir.absolute())
    held = "1 virtual host is" if len(vhosts) == 1 else f"{len(vhosts)} virtual hosts are"
    done = f"{held} in {data_dir}; start a broker with --data-dir {data_dir}"
    print_done(done, {"data_dir": str(data_dir), "vhosts": vhosts}, is_json)
