"""`penstock import`: makes a data directory of another broker's. No broker runs meanwhile, neither theirs nor ours."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.group import Commands
from penstock.cli.output import Format, Output, print_done, print_fields, progress

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["app"]

app = Commands(help="Migrate from another broker.")


@app.callback()
def choose() -> None:
    """Migrate from another broker."""


@app.command()
def lavinmq(
    directory: Annotated[Path, typer.Argument(help="LavinMQ's data_dir, stopped or copied.", exists=True)],
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="The new data directory; empty or missing.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and check, write nothing.")] = False,
    shards: Annotated[int, typer.Option("--shards", min=1, help="Shards of each vhost.")] = 1,
    partial: Annotated[bool, typer.Option("--partial", help="Leave out and list what is not supported.")] = False,
    output: Output = None,
) -> None:
    """Import a LavinMQ data directory.

    This imports users, permissions, vhosts, exchanges, queues, bindings and messages that are not acknowledged.
    Anything that is not supported is listed and fails the import, unless --partial is given.
    """
    if dry_run == (data_dir is not None):
        raise typer.BadParameter("name the new data directory with --data-dir, or ask for a --dry-run")
    importing = import_module("penstock.importing.writing")
    with _removed_on_sigterm(), progress(output) as shown:
        target = None if data_dir is None else data_dir.absolute()
        report: Any = importing.import_lavinmq(
            directory, target, is_partial=partial, on_progress=_shown_on(shown), shard_count=shards
        )
    fields = asdict(report)
    if output is Format.JSON:
        print_done("", fields, output)
        return
    left_out: list[str] = fields.pop("left_out")
    print_fields(fields, output)
    for line in left_out:
        sys.stderr.write(f"not taken: {line}\n")
    done = "nothing was written" if data_dir is None else f"start a broker with --data-dir {data_dir}"
    print_done(done, fields, output)


@contextmanager
def _removed_on_sigterm() -> Iterator[None]:
    """End by an exception, not at once, so that the files of an import that is not complete are removed."""

    def end(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one would end the removal
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    except SystemExit:
        sys.stderr.write("penstock: ended by SIGTERM; the files of an import that is not complete were removed\n")
        raise


def _shown_on(bar: "Progress | None") -> Callable[[int, int], None]:
    if bar is None:
        return lambda _done, _total: None
    task = bar.add_task("reading messages", total=None)
    return lambda done, total: bar.update(task, completed=done, total=max(total, 1))
