"""`penstock publish`, `consume` and `get`: messages from and to a shell.

A body goes in as it is given and comes out as it was stored, followed by a line end. With `--output json` each message
is one line.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from penstock.cli.options import Durability, QueueName, Uri, complete_exchanges, connected, read_fields
from penstock.cli.output import Format, Output, print_done, print_json, print_note, progress

if TYPE_CHECKING:
    from rich.progress import Progress

    from penstock import Message, Properties

__all__ = [
    "INTERRUPTED",
    "advance",
    "chunks",
    "consume",
    "described_properties",
    "get",
    "lines",
    "print_body",
    "publish",
]

T = TypeVar("T")

CHUNK = 1_000
REQUEUE_IDLE_SECONDS = 1.0
INTERRUPTED = 130
"""The exit status of a command that Ctrl-C ended."""


def publish(
    context: typer.Context,
    body: Annotated[str, typer.Argument(help="The message, or - for a message per line of stdin.")] = "-",
    exchange: Annotated[
        str,
        typer.Option(
            "--exchange", "-e", help="The exchange; default: straight to a queue.", autocompletion=complete_exchanges
        ),
    ] = "",
    routing_key: Annotated[str, typer.Option("--routing-key", "-r", help="The routing key.")] = "",
    header: Annotated[list[str] | None, typer.Option("--header", help="NAME=VALUE; repeatable.")] = None,
    prop: Annotated[
        list[str] | None, typer.Option("--property", "-p", help="NAME=VALUE, as in content_type=text/plain.")
    ] = None,
    mandatory: Annotated[
        bool | None,
        typer.Option("--mandatory/--no-mandatory", help="Fail if no queue gets it; default without exchange."),
    ] = None,
    durability: Durability = None,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Publish messages and wait for the confirms.

    With - each line of stdin is a message: its line end is removed and nothing else, and an empty line is an empty
    message.
    """
    from penstock.client.errors import ReturnedError

    fields = read_fields(prop)
    properties = _properties(fields, read_fields(header))
    bodies = lines() if body == "-" else iter([os.fsencode(body)])
    count = 0
    if not exchange and not routing_key and mandatory is not False:
        raise ValueError("no exchange and no queue; name a queue with --routing-key, or an exchange with --exchange")
    is_mandatory = not exchange if mandatory is None else mandatory
    with connected(context, uri, durability=durability) as connection, progress(output) as shown:
        try:
            for chunk in chunks(bodies):
                count += connection.publish_many(chunk, exchange, routing_key, properties, mandatory=is_mandatory)
                advance(shown, "publishing", count)
        except KeyboardInterrupt:
            print_note(f"interrupted; {count:,} published and confirmed")
            raise typer.Exit(INTERRUPTED) from None
        except ReturnedError as error:
            if exchange:
                raise
            raise ValueError(f"no queue '{routing_key}'; declare it first or correct the key") from error
    print_done(f"{count:,} published and confirmed", {"published": count}, output)


def consume(
    context: typer.Context,
    queue: QueueName,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after this many.")] = None,
    requeue: Annotated[bool, typer.Option("--requeue/--ack", help="Return messages to the queue at the end.")] = False,
    prefetch: Annotated[int, typer.Option("--prefetch", min=1, help="Most unacked messages at a time.")] = 1_000,
    idle: Annotated[
        float | None, typer.Option("--idle", min=0, help="End after this many seconds without a message.")
    ] = None,
    priority: Annotated[int, typer.Option("--priority", help="Get messages before lower priorities.")] = 0,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Consume and print messages until Ctrl-C."""
    if requeue:
        # What is held until the end must fit, and what comes back must not be printed twice.
        prefetch = max(prefetch, count or 0)
        idle = REQUEUE_IDLE_SECONDS if idle is None and count is None else idle
    held: list[Message] = []
    with connected(context, uri) as connection:
        messages = connection.consume(queue, prefetch=prefetch, idle_timeout=idle, priority=priority)
        try:
            with messages:
                _print_messages(iter(messages), count, held if requeue else None, output)
                for message in held:
                    message.nack(requeue=True)
        except KeyboardInterrupt:
            print_note("interrupted")
            raise typer.Exit(INTERRUPTED) from None


def get(
    context: typer.Context,
    queue: QueueName,
    requeue: Annotated[bool, typer.Option("--requeue/--ack", help="Return it to the queue.")] = False,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Get and print the next message."""
    with connected(context, uri) as connection:
        message = connection.get(queue)
        if message is None:
            print_note(f"queue '{queue}' has no ready message")
            if output is Format.JSON:
                print_json(None)
            return
        _print_message(message, output)
        if requeue:
            message.nack(requeue=True)
        else:
            message.ack()


def _print_messages(
    messages: "Iterator[Message]", count: int | None, held: "list[Message] | None", output: Format | None
) -> None:
    left = -1 if count is None else count
    for message in messages:
        _print_message(message, output)
        if held is None:
            message.ack()
        else:
            held.append(message)
        left -= 1
        if left == 0:
            return


def _print_message(message: "Message", output: Format | None) -> None:
    if output is Format.JSON:
        print_json(_described(message))
        sys.stdout.flush()
        return
    print_body(message.body)


def print_body(body: bytes) -> None:
    """Print a body as it was stored, followed by a line end."""
    sys.stdout.flush()
    sys.stdout.buffer.write(body + b"\n")
    sys.stdout.buffer.flush()


def _described(message: "Message") -> dict[str, Any]:
    described: dict[str, Any] = {
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "sequence": message.sequence,
        "redelivered": message.redelivered,
        "delivery_count": message.delivery_count,
        "stored_at_ms": message.stored_at_ms,
        "delivery_mode": message.properties.delivery_mode,
        "properties": described_properties(message.properties),
        "headers": dict(message.headers),
    }
    try:
        return {"body": message.body.decode(), **described}
    except UnicodeDecodeError:
        return {"body_base64": message.body, **described}


def described_properties(properties: "Properties") -> dict[str, Any]:
    """Return the properties that are set and have no column of their own."""
    return {
        name: value
        for name, value in asdict(properties).items()
        if value is not None and name not in ("headers", "delivery_mode")
    }


def _properties(fields: dict[str, Any], headers: dict[str, Any]) -> "Properties":
    from penstock import Properties

    known = set(Properties.__dataclass_fields__) - {"headers"}
    for name in fields:
        if name not in known:
            raise typer.BadParameter(f"no property '{name}'; there are {', '.join(sorted(known))}")
    whole = ("delivery_mode", "priority", "timestamp")
    for name in whole:
        if type(fields.get(name, 0)) is not int:
            raise typer.BadParameter(f"property '{name}' must be a whole number, not '{fields[name]}'")
    given: dict[str, Any] = {name: value if name in whole else str(value) for name, value in fields.items()}
    return Properties(headers=headers, **given)


def lines() -> Iterator[bytes]:
    """Yield the lines of stdin without their newlines; a carriage return stays."""
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n")


def chunks(bodies: Iterator[T]) -> Iterator[list[T]]:
    chunk: list[T] = []
    for body in bodies:
        chunk.append(body)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def advance(shown: "Progress | None", what: str, count: int) -> None:
    if shown is None:
        return
    if not shown.tasks:
        shown.add_task(what, total=None)
    shown.update(shown.tasks[0].id, completed=count, description=f"{what} {count:,}")
