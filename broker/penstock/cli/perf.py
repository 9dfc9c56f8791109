"""`penstock perf`: measures a broker with the native load generator, and what each message costs the broker's CPU.

The queues perf-1, perf-2, ... are durable and deleted at the end, unless --keep is given.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.group import Commands
from penstock.cli.options import DurabilityName, Uri, address_of, connected_to
from penstock.cli.output import Format, Output, progress
from penstock.cli.perf_amqp import amqp, print_figures

if TYPE_CHECKING:
    from penstock import Connection
    from penstock.client.records import Status

__all__ = ["app"]

app = Commands(help="Measure a broker's performance.")
app.command()(amqp)

STEP_SECONDS = 0.1

Size = Annotated[int, typer.Option("--size", min=0, max=512 * 1024 * 1024, help="Bytes of a message body.")]
Seconds = Annotated[float, typer.Option("--seconds", min=0.1, max=86_400, help="How long to measure.")]
SECONDS = 5.0
Durability = Annotated[
    DurabilityName, typer.Option("--durability", help="Guarantee of a confirm: page cache (os), disk or replicated.")
]

Keep = Annotated[bool, typer.Option("--keep", help="Keep the queues and their messages.")]


@app.command()
def throughput(
    context: typer.Context,
    size: Size = 16,
    batch: Annotated[int, typer.Option("--batch", min=1, max=10_000, help="Messages per request.")] = 100,
    publishers: Annotated[int, typer.Option("--publishers", min=0, max=1_000, help="Number of publishers.")] = 1,
    consumers: Annotated[int, typer.Option("--consumers", min=0, max=1_000, help="Number of consumers.")] = 1,
    queues: Annotated[int, typer.Option("--queues", min=1, max=100_000, help="Number of queues.")] = 1,
    in_flight: Annotated[
        int, typer.Option("--in-flight", min=1, help="Most unconfirmed messages of a publisher.")
    ] = 1_000,
    prefetch: Annotated[int, typer.Option("--prefetch", min=1, help="Most unacked messages of a consumer.")] = 4_000,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            min=0.1,
            max=86_400,
            help=f"How long to measure; default: {SECONDS:g}, if nothing else ends it.",
        ),
    ] = None,
    messages: Annotated[int | None, typer.Option("--messages", min=1, help="End after this many messages.")] = None,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="Consume until the queues are empty.")] = False,
    stream: Annotated[bool, typer.Option("--stream", help="Use streams instead of queues.")] = False,
    durability: Durability = DurabilityName.OS,
    keeps: Keep = False,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Measure how many messages a second pass.

    Each publisher and consumer has a connection of its own.
    """
    options: dict[str, Any] = {
        "size": size,
        "batch": batch,
        "publishers": publishers,
        "consumers": consumers,
        "queues": queues,
        "in_flight": in_flight,
        "prefetch": prefetch,
        "until_empty": until_empty,
        "stream": stream,
        "level": durability.value,
    }
    if messages is not None:
        options["messages"] = messages
    limit = _limit(seconds, messages is not None or (until_empty and publishers == 0))
    if limit is not None:
        options["seconds"] = limit
    _measure(context, uri, output, "measure_throughput", options, keeps)


@app.command()
def latency(
    context: typer.Context,
    size: Size = 100,
    rate: Annotated[float, typer.Option("--rate", min=0.1, max=1_000_000, help="Messages per second.")] = 1_000,
    seconds: Seconds = SECONDS,
    durability: Durability = DurabilityName.OS,
    keeps: Keep = False,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Measure how long confirms and deliveries take."""
    options: dict[str, Any] = {"size": size, "rate": rate, "queues": 1, "seconds": seconds, "level": durability.value}
    _measure(context, uri, output, "measure_latency", options, keeps)


def _measure(
    context: typer.Context,
    uri: str | None,
    output: Format | None,
    name: str,
    options: dict[str, Any],
    keeps: bool,
) -> None:
    from penstock.client.uri import parse_uri

    whole_uri = address_of(context, uri)
    address = parse_uri(whole_uri)
    options |= {"targets": address.targets, "authorization": address.authorization, "vhost": address.vhost}
    options["follows"] = address.follows
    if address.tls is not None:
        options["tls"] = dict(
            zip(("authorities", "certificate", "key", "server_name"), address.tls.texts(), strict=True)
        )
    measure = _native(name)
    with connected_to(context, whole_uri) as connection, _queues(connection, options, keeps):
        before, start = connection.admin.status(), monotonic()
        figures = _watched(measure, options, output)
        after, seconds = connection.admin.status(), monotonic() - start
    is_interrupted = figures is None
    if figures is None:
        figures = _so_far(before, after, seconds)
    figures["broker_cpu_us"] = _cpu_us(before, after)
    print_figures(figures, output, "the broker's, of all its clients" if is_interrupted else None)


@contextmanager
def _queues(connection: "Connection", options: dict[str, Any], keeps: bool) -> Iterator[None]:
    """Declare the queues or streams, and delete them at the end."""
    is_stream = options.get("stream")
    names = [f"perf-{number}" for number in range(1, options["queues"] + 1)]
    for name in names:
        (connection.declare_stream if is_stream else connection.declare_queue)(name)
    try:
        yield
    finally:
        for name in () if keeps else names:
            (connection.delete_stream if is_stream else connection.delete_queue)(name)


def _limit(seconds: float | None, ends_by_itself: bool) -> float | None:
    """Ten million messages are not done in a few seconds: what says how many is not cut short."""
    return SECONDS if seconds is None and not ends_by_itself else seconds


def _cpu_us(before: "Status", after: "Status") -> float:
    """Microseconds of the broker's CPU per message that went in or came out, whichever were more."""
    published = after.published_total - before.published_total
    delivered = after.delivered_total - before.delivered_total
    spent = (after.cpu_seconds - before.cpu_seconds) * 1_000_000
    return round(spent / max(published, delivered, 1), 4)


def _so_far(before: "Status", after: "Status", seconds: float) -> dict[str, Any]:
    """Return what the broker counted until an interruption; the load generator has no figures before its end."""
    published = after.published_total - before.published_total
    consumed = after.delivered_total - before.delivered_total
    return {
        "published": published,
        "published_per_s": round(published / seconds, 1),
        "consumed": consumed,
        "consumed_per_s": round(consumed / seconds, 1),
        "seconds": round(seconds, 3),
    }


def _watched(
    measure: Callable[[dict[str, Any]], dict[str, Any]], options: dict[str, Any], output: Format | None
) -> dict[str, Any] | None:
    """Run a measurement beside a progress bar. Return its figures, or None after Ctrl-C, which leaves it behind."""
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
    with progress(output) as shown:
        task = None if shown is None else shown.add_task("measuring", total=options.get("seconds"))
        try:
            while thread.is_alive():
                thread.join(STEP_SECONDS)
                if shown is not None and task is not None:
                    shown.advance(task, STEP_SECONDS)
        except KeyboardInterrupt:
            return None
    if failed:
        raise failed[0]
    if not found:
        raise ValueError("the load generator ended without figures; its message is above")
    return found[0]


def _native(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    try:
        native = import_module("penstock.client.native")
    except ImportError as error:
        raise ValueError("perf needs the native module, which is not there; run make setup") from error
    measure: Callable[[dict[str, Any]], dict[str, Any]] = getattr(native, name)
    return measure
