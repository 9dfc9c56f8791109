"""`penstock perf amqp`: measures any AMQP 0-9-1 broker with the native load generator.

It needs nothing of the broker but AMQP. The queues have names of their own, perf-RUN-1, ..., and are deleted at the
end.
"""

import os
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from typing import Annotated, Any

import typer

from penstock.cli.amqp_uri import parse_amqp_uri
from penstock.cli.messages import INTERRUPTED
from penstock.cli.output import Format, Output, print_fields, print_json, print_note, progress

__all__ = ["amqp"]

SECONDS = 5.0
STEP_SECONDS = 0.1
# What the broker may take to confirm what is on its way, and to delete the queues.
END_SECONDS = 60

AmqpUri = Annotated[
    str,
    typer.Option(
        "--uri",
        envvar="PENSTOCK_AMQP_URI",
        help="The broker: amqp://user:password@host:port/vhost.",
        metavar="URI",
    ),
]
PasswordFile = Annotated[
    Path | None, typer.Option("--password-file", help="File whose first line is the password.", metavar="FILE")
]
Rate = Annotated[
    float | None,
    typer.Option("--rate", min=0.1, max=10_000_000, help="Messages per second of all publishers; default: no limit."),
]
InFlight = Annotated[
    int, typer.Option("--in-flight", min=0, max=1_000_000, help="Most unconfirmed messages; 0: no confirms.")
]
Seconds = Annotated[
    float | None,
    typer.Option("--seconds", min=0.1, max=86_400, help=f"How long to measure; default: {SECONDS:g}."),
]
Pid = Annotated[
    int | None,
    typer.Option("--pid", min=1, help="The broker's process here: print its CPU per message."),
]
Prefetch = Annotated[
    int, typer.Option("--prefetch", min=0, max=65_535, help="Most unacked messages of a consumer; 0: no limit.")
]
Size = Annotated[
    int, typer.Option("--size", min=0, max=512 * 1024 * 1024, help="Bytes of a message body; 8 for latencies.")
]


def amqp(
    uri: AmqpUri = "amqp://guest:guest@127.0.0.1:5672/",
    password_file: PasswordFile = None,
    size: Size = 16,
    publishers: Annotated[int, typer.Option("--publishers", min=1, max=1_000, help="Number of publishers.")] = 1,
    consumers: Annotated[int, typer.Option("--consumers", min=0, max=1_000, help="Number of consumers.")] = 1,
    queues: Annotated[int, typer.Option("--queues", min=1, max=100_000, help="Number of queues.")] = 1,
    quorum: Annotated[bool, typer.Option("--quorum", help="Declare quorum queues.")] = False,
    rate: Rate = None,
    in_flight: InFlight = 1_000,
    auto_ack: Annotated[bool, typer.Option("--auto-ack", help="Consume without acks.")] = False,
    ack_batch: Annotated[int, typer.Option("--ack-batch", min=1, max=65_535, help="Messages per ack.")] = 100,
    prefetch: Prefetch = 4_000,
    persistent: Annotated[bool, typer.Option("--persistent", help="Publish persistent messages.")] = False,
    seconds: Seconds = None,
    messages: Annotated[int | None, typer.Option("--messages", min=1, help="End after this many messages.")] = None,
    pid: Pid = None,
    output: Output = None,
) -> None:
    """Measure any AMQP 0-9-1 broker.

    Each publisher and consumer has a connection of its own.
    """
    address = parse_amqp_uri(uri)
    options = {
        "host": address.host,
        "port": address.port,
        "user": address.user,
        "password": _password(address.password, password_file),
        "vhost": address.vhost,
        "size": size,
        "publishers": publishers,
        "consumers": consumers,
        "queues": queues,
        "quorum": quorum,
        "rate": rate,
        "in_flight": in_flight,
        "auto_ack": auto_ack,
        "ack_batch": ack_batch,
        "prefetch": prefetch,
        "persistent": persistent,
        "seconds": SECONDS if seconds is None and messages is None else seconds,
        "messages": messages,
        "pid": pid,
    }
    figures, is_interrupted = _measured(options, output)
    print_figures(figures, output, "of the time until then" if is_interrupted else None)


def print_figures(figures: dict[str, Any], output: Format | None, interrupted: str | None) -> None:
    """Print figures, and what they are of if the measurement was interrupted. Raises ValueError for its errors."""
    if output is Format.JSON:
        print_json(figures)
    else:
        print_fields(figures, output)
    if figures.get("errors"):
        raise ValueError(f"not all went well: {'; '.join(figures['errors'])}")
    if interrupted is not None:
        print_note(f"interrupted; the figures are {interrupted}")
        raise typer.Exit(INTERRUPTED)


def _password(written: str | None, file: Path | None) -> str:
    if file is not None:
        return file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    return os.environ.get("PENSTOCK_PASSWORD", "guest") if written is None else written


def _measured(options: dict[str, Any], output: Format | None) -> tuple[dict[str, Any], bool]:
    """Run a measurement beside a progress bar. Ctrl-C ends it early, with figures, and its queues are deleted."""
    native = _native()
    found: list[dict[str, Any]] = []
    is_over = Event()

    def run() -> None:
        try:
            found.append(native.measure_amqp(options))
        finally:
            is_over.set()

    # A second Ctrl-C while the broker answers nothing leaves the thread behind.
    Thread(target=run, name="perf-amqp", daemon=True).start()
    is_interrupted = False
    with progress(output) as shown:
        task = None if shown is None else shown.add_task("measuring", total=options["seconds"])
        try:
            # An interrupted join would take the thread for ended.
            while not is_over.wait(STEP_SECONDS):
                if shown is not None and task is not None:
                    shown.advance(task, STEP_SECONDS)
        except KeyboardInterrupt:
            is_interrupted = True
            native.interrupt_amqp()
            is_over.wait(END_SECONDS)
    if not found:
        raise ValueError("the load generator ended without figures; its message is above")
    return found[0], is_interrupted


def _native() -> Any:
    try:
        return import_module("penstock.client.native")
    except ImportError as error:
        raise ValueError("perf needs the native module, which is not there; run make setup") from error
