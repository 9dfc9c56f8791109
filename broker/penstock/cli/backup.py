"""`penstock backup` and `penstock restore`: a copy of a running broker's data, and a new data directory of a copy."""

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import Uri, connected
from penstock.cli.output import Output, print_done

__all__ = ["backup", "restore"]

SECONDS_MAX = 3_600.0


def backup(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(help="Absolute path on the broker's machine; empty or new.")],
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Back up a running broker. For administrators."""
    with connected(context, uri, timeout=SECONDS_MAX) as connection:
        size = connection.admin.backup(str(directory))
    print_done(f"{size:,} bytes written to {directory}", {"directory": str(directory), "bytes": size}, output)


def restore(
    directory: Annotated[Path, typer.Argument(help="The backup.", exists=True, file_okay=False)],
    data_dir: Annotated[Path, typer.Option("--data-dir", help="The new data directory; empty or missing.")],
    output: Output = None,
) -> None:
    """Create a data directory from a backup. No broker is needed."""
    storage = import_module("penstock.storage")
    vhosts: list[str] = storage.restore_backup(directory, data_dir.absolute())
    held = "1 vhost" if len(vhosts) == 1 else f"{len(vhosts)} vhosts"
    done = f"{held} restored to {data_dir}; start a broker with --data-dir {data_dir}"
    print_done(done, {"data_dir": str(data_dir), "vhosts": vhosts}, output)
