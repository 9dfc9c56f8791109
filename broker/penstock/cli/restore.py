"""`penstock restore`: a new data directory of a backup."""

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.archive_places import place_of
from penstock.cli.output import Output, print_done

__all__ = ["restore"]


def restore(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A backup: directory, file, or s3://BUCKET/KEY.")],
    data_dir: Annotated[Path, typer.Option("--data-dir", help="The new data directory; empty or missing.")],
    if_empty: Annotated[bool, typer.Option("--if-empty", help="Do nothing if it is a data directory.")] = False,
    output: Output = None,
) -> None:
    """Create a data directory from a backup. No broker is needed."""
    storage = import_module("penstock.storage")
    target = data_dir.absolute()
    if if_empty and storage.holds_data(target):
        left = {"data_dir": str(data_dir), "restored": False}
        print_done(f"{data_dir} holds data already; nothing was restored", left, output)
        return
    vhosts: list[str]
    if Path(source).is_dir():
        vhosts = storage.restore_backup(Path(source), target)
    else:
        with place_of(source).opened() as read:
            vhosts = storage.restore_archive(read, source, target)
    held = "1 vhost" if len(vhosts) == 1 else f"{len(vhosts)} vhosts"
    done = f"{held} restored to {data_dir}; start a broker with --data-dir {data_dir}"
    cluster = storage.restored_cluster(target)
    fields = {"data_dir": str(data_dir), "restored": True, "vhosts": vhosts}
    if cluster is not None:
        done = (
            f"{held} of cluster '{cluster}' restored to {data_dir}; start the first broker of a new cluster "
            f"'{cluster}' with --data-dir {data_dir}, and the others after it"
        )
        fields["cluster"] = cluster
    print_done(done, fields, output)
