"""`penstock perf`: measures a broker with the native load generator, and what each message costs the broker's CPU.

The queues perf-1, perf-2, ... are durable and stay with what was not consumed.
"""

from collections.abc import Callable
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import DEFAULT_URI, Json, Uri, connected
from penstock.cli.output import print_fields, print_json, progress

if TYPE_CHECKING:
    from penstock.client.records import Status

__all__ = ["app"]

app = typer.Typer(help="Measure a broker.", no_args_is_help=True)

LEVELS = ("os", "disk")
STEP_SECONDS = 0.1

Size = Annotated[int, typer.Option("--size", min=0, max=512 * 1024 * 1024, help="Bytes of a body.")]
Seconds = Annotated[float, typer.Option("--seconds", min=0.1, max=86_400)]
SECONDS = 5.0
Level = Annotated[str, typer.Option("--level", help="os or disk: what the confirms promise.")]


@app.command()
def throughput(
    context: typer.Context,
    size: Size = 16,
    batch: Annotated[int, typer.Option("--batch", min=1, max=10_000, help="Messages a request.")] = 100,
    publishers: Annotated[int, typer.Option("--publishers", min=0, max=1_000)] = 1,
    consumers: Annotated[int, typer.Option("--consumers", min=0, max=1_000)] = 1,
    queues: Annotated[int, typer.Option("--queues", min=1, max=100_000)] = 1,
    in_flight: Annotated[int, typer.Option("--in-flight", min=1, help="Most unconfirmed of a publisher.")] = 1_000,
    prefetch: Annotated[int, typer.Option("--prefetch", min=1, help="Most unsettled of a consumer.")] = 4_000,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=0.1, max=86_400, help=f"{SECONDS:g} where nothing else ends it."),
    ] = None,
    messages: Annotated[int | None, typer.Option("--messages", min=1, help="End after so many, if sooner.")] = None,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="Consume until nothing is left.")] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="Streams in place of queues; consumers are readers.")
    ] = False,
    level: Level = "os",
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Publish and consume as fast as it goes; each publisher and consumer has a connection of its own."""
    options = {
        "size": size,
        "batch": batch,
        "publishers": publishers,
        "consumers": consumers,
        "queues": queues,
        "in_flight": in_flight,
        "prefetch": prefetch,
        "until_empty": until_empty,
        "stream": stream,
        "level": _level(level),
    }
    if messages is not None:
        options["messages"] = messages
    limit = _limit(seconds, messages is not None or (until_empty and publishers == 0))
    if limit is not None:
        options["seconds"] = limit
    _measure(context, uri, is_json, "measure_throughput", options)


@app.command()
def latency(
    context: typer.Context,
    size: Size = 100,
    rate: Annotated[float, typer.Option("--rate", min=0.1, max=1_000_000, help="Messages a second.")] = 1_000,
    seconds: Seconds = SECONDS,
    level: Level = "os",
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Publish one by one at a steady rate; how long confirms and deliveries take."""
    options = {"size": size, "rate": rate, "queues": 1, "seconds": seconds, "level": _level(level)}
    _measure(context, uri, is_json, "measure_latency", options)


def _measure(
    context: typer.Context,
    uri: str,
    is_json: bool,
    name: str,
    options: dict[str, Any],
) -> None:
    from penstock.client.uri import parse_uri

    address = parse_uri(uri)
    options |= {"target": address.target, "authorization": address.authorization, "vhost": address.vhost}
    if address.tls is not None:
        options["tls"] = dict(
            zip(("authorities", "certificate", "key", "server_name"), address.tls.texts(), strict=True)
        )
    measure = _native(name)
    with connected(context, uri) as connection:
        for number in range(1, options["queues"] + 1):
            declare = connection.declare_stream if options.get("stream") else connection.declare_queue
            declare(f"perf-{number}")
        before = connection.admin.status()
        figures = _watched(measure, options, is_json)
        after = connection.admin.status()
    figures["broker_cpu_us"] = _cpu_us(before, after)
    if is_json:
        print_json(figures)
    else:
        print_fields(figures)
    if figures.get("errors"):
        raise ValueError(f"not all went well: {'; '.join(figures['errors'])}")


def _limit(seconds: float | None, ends_by_itself: bool) -> float | None:
    """Ten million messages are not done in a few seconds: what says how many is not cut short."""
    return SECONDS if seconds is None and not ends_by_itself else seconds


def _cpu_us(before: "Status", after: "Status") -> float:
    """Microseconds of the broker's CPU per message that went in or came out, whichever were more."""
    published = after.published_total - before.published_total
    delivered = after.delivered_total - before.delivered_total
    spent = (after.cpu_seconds - before.cpu_seconds) * 1_000_000
    return round(spent / max(published, delivered, 1), 4)


def _watched(
    measure: Callable[[dict[str, Any]], dict[str, Any]], options: dict[str, Any], is_json: bool
) -> dict[str, Any]:
    """Runs a measurement beside a progress bar; Ctrl-C leaves it behind."""
    from penstock.client.errors import PenstockError

    found: list[dict[str, Any]] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(measure(options))
        except (PenstockError, ValueError, RuntimeError) as error:
            failed.append(error)

    thread = Thread(target=run, name="penstock-perf", daemon=True)
    thread.start()
    with progress(is_json) as shown:
        task = None if shown is None else shown.add_task("measuring", total=options.get("seconds"))
        while thread.is_alive():
            thread.join(STEP_SECONDS)
            if shown is not None and task is not None:
                shown.advance(task, STEP_SECONDS)
    if failed:
        raise failed[0]
    if not found:
        raise ValueError("the load generator ended without figures; its message is above")
    return found[0]


def _level(level: str) -> str:
    if level not in LEVELS:
        raise typer.BadParameter(f"'{level}' is not one of {', '.join(LEVELS)}", param_hint="--level")
    return level


def _native(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    try:
        native = import_module("penstock.client.native")
    except ImportError as error:
        raise ValueError("perf needs the native module, which is not there; run make setup") from error
    measure: Callable[[dict[str, Any]], dict[str, Any]] = getattr(native, name)
    return measure
