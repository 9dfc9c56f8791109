"""`penstock queue list`: the queues of a vhost, filtered and sorted, once or again and again, with rates.

The rates come from two samples of the counts that the broker keeps of each queue.
"""

import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Uri, connected
from penstock.cli.output import Format, Output, print_json, print_rows

if TYPE_CHECKING:
    from penstock import Connection
    from penstock.client.records import Queue

    _Sampled = tuple[float, Queue]

__all__ = ["show"]

COLUMNS = ("name", "type", "ready_count", "delayed_count", "unacked_count", "bytes", "consumer_count")
ARGUMENT_COLUMNS = ("name", "type", "policy", "operator_policy", "effective_arguments")
# The counts that rates are measured of, by column.
RATES = {
    "published_per_second": "published_count",
    "delivered_per_second": "delivered_count",
    "settled_per_second": "settled_count",
}
CLEAR_SCREEN = "\x1b[H\x1b[2J"
SECONDS = 2.0


def show(
    context: typer.Context,
    pattern: Annotated[str, typer.Argument(help="Only queues whose name matches, as 'orders.*'.")] = "*",
    sort: Annotated[str, typer.Option("--sort", help="Column; numbers sort from the largest.")] = "name",
    reverse: Annotated[bool, typer.Option("--reverse", help="Reverse the order.")] = False,
    rates: Annotated[bool, typer.Option("--rates", help="Measure messages per second.")] = False,
    arguments: Annotated[bool, typer.Option("--arguments", help="Show arguments merged with policies.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until Ctrl-C, with rates.")] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two samples.")] = SECONDS,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """List queues."""
    if arguments and (rates or watch):
        raise typer.BadParameter("cannot be shown with rates", param_hint="--arguments")
    columns = ARGUMENT_COLUMNS if arguments else (*COLUMNS, *RATES) if rates or watch else COLUMNS
    by = [column for column in columns if column != "effective_arguments"]
    if sort not in by:
        raise typer.BadParameter(f"no column '{sort}'; use one of {', '.join(by)}", param_hint="--sort")
    with connected(context, uri) as connection:
        before = _sample(connection, pattern) if rates or watch else {}
        while True:
            if rates or watch:
                time.sleep(interval)
            now = _sample(connection, pattern)
            rows = [_row(queue, before.get(name), columns) for name, queue in now.items()]
            _print(_sorted(rows, sort, reverse), columns, output, clears=watch)
            if not watch:
                return
            before = now


def _sample(connection: "Connection", pattern: str) -> "dict[str, _Sampled]":
    at = time.monotonic()
    queues = connection.admin.list_queues()
    return {queue.name: (at, queue) for queue in queues if fnmatchcase(queue.name, pattern)}


def _row(sampled: "_Sampled", before: "_Sampled | None", columns: Sequence[str]) -> dict[str, Any]:
    """Return what is known of a queue; JSON shows all of it, the table its columns."""
    queue = sampled[1]
    row: dict[str, Any] = {
        "name": queue.name,
        "type": queue.type,
        "durable": queue.durable,
        "exclusive": queue.exclusive,
        "auto_delete": queue.auto_delete,
        "arguments": queue.arguments,
        "effective_arguments": queue.effective_arguments,
        "policy": queue.policy,
        "operator_policy": queue.operator_policy,
        "ready_count": queue.ready_count,
        "delayed_count": queue.delayed_count,
        "unacked_count": queue.unacked_count,
        "bytes": queue.ready_bytes + queue.unacked_bytes,
        "ready_bytes": queue.ready_bytes,
        "unacked_bytes": queue.unacked_bytes,
        "consumer_count": queue.consumer_count,
        "published_count": queue.published_count,
        "delivered_count": queue.delivered_count,
        "settled_count": queue.settled_count,
        "deduplicated_count": queue.deduplicated_count,
    }
    return row | {rate: _rate(count, sampled, before) for rate, count in RATES.items() if rate in columns}


def _rate(count: str, sampled: "_Sampled", before: "_Sampled | None") -> float | None:
    """Return how fast a count grew since the sample before; None for a queue that was not in it, or that is new."""
    if before is None:
        return None
    (at, queue), (then, earlier) = sampled, before
    change: int = getattr(queue, count) - getattr(earlier, count)
    # The counts of a queue begin again when it is declared anew, or the broker starts.
    return round(change / max(at - then, 0.001), 1) if change >= 0 else None


def _sorted(rows: list[dict[str, Any]], column: str, reverse: bool) -> list[dict[str, Any]]:
    """Sort names from a to z and numbers from the largest, equal ones by name."""
    by_name = sorted(rows, key=lambda row: row["name"])
    is_text = column in ("name", "type", "policy", "operator_policy")
    nothing: Any = "" if is_text else 0
    return sorted(by_name, key=lambda row: row[column] or nothing, reverse=reverse == is_text)


def _print(rows: list[dict[str, Any]], columns: Sequence[str], output: Format | None, *, clears: bool) -> None:
    if clears and output is not Format.JSON and sys.stdout.isatty():
        sys.stdout.write(CLEAR_SCREEN)
    if output is Format.JSON:
        print_json(rows)
    else:
        print_rows([[row[column] for column in columns] for row in rows], columns, output)
    sys.stdout.flush()
