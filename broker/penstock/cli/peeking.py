"""`penstock queue peek` and `move`: look at ready messages, and publish them anew elsewhere, as for dead letters."""

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.messages import INTERRUPTED, described_properties, print_body
from penstock.cli.options import QueueName, Uri, complete_exchanges, connected
from penstock.cli.output import Format, Output, counted, print_done, print_json, print_note

if TYPE_CHECKING:
    from penstock import Connection, Message
    from penstock.client.stored import Stored

__all__ = ["move", "peek"]

LOOKED_MAX = 10_000
"""Messages that a move takes at a time: those that do not match stay with it until its end."""

Count = Annotated[int, typer.Option("--count", "-n", min=1, help="Most messages.")]
Key = Annotated[str | None, typer.Option("--routing-key", "-r", help="Only messages with this routing key.")]
Header = Annotated[str | None, typer.Option("--header", help="Only messages with this header: NAME=VALUE.")]


def peek(
    context: typer.Context,
    name: QueueName,
    count: Count = 10,
    routing_key: Key = None,
    header: Header = None,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Print ready messages and leave them in the queue."""
    wanted = _header(header)
    with connected(context, uri) as connection:
        found = connection.peek(name, count, routing_key, wanted)
    for message in found:
        if output is Format.JSON:
            print_json(_described(message, message.sequence))
        else:
            print_body(message.body)
    if not found:
        print_note(f"queue '{name}' has no such ready message")


def move(
    context: typer.Context,
    name: QueueName,
    queue: Annotated[str, typer.Option("--to-queue", help="The queue to publish to.")] = "",
    exchange: Annotated[
        str, typer.Option("--to-exchange", help="The exchange to publish to.", autocompletion=complete_exchanges)
    ] = "",
    new_key: Annotated[str | None, typer.Option("--new-key", help="Routing key; default: the message's own.")] = None,
    count: Count = 1_000,
    routing_key: Key = None,
    header: Header = None,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Publish messages elsewhere, then delete them from the queue.

    Each is deleted when the broker has confirmed its copy. A move that is interrupted loses none, and may leave one in
    both places.
    """
    if bool(queue) == bool(exchange):
        raise typer.BadParameter("name either --to-queue or --to-exchange")
    if queue and new_key is not None:
        raise typer.BadParameter("--new-key is for --to-exchange", param_hint="--new-key")
    if queue == name:
        raise typer.BadParameter(f"queue '{name}' is the source", param_hint="--to-queue")
    wanted = _header(header)
    moved = 0
    with connected(context, uri) as connection:
        held: list[Message] = []
        try:
            while moved < count and len(held) < LOOKED_MAX:
                message = connection.get(name)
                if message is None:
                    break
                if not _matches(message, routing_key, wanted):
                    held.append(message)
                    continue
                key = queue or (message.routing_key if new_key is None else new_key)
                _publish(connection, message, exchange, key, held)
                message.ack()
                moved += 1
        except KeyboardInterrupt:
            print_note(f"interrupted; {counted(moved, 'message')} moved")
            raise typer.Exit(INTERRUPTED) from None
        finally:
            for message in held:
                message.nack(requeue=True)
    if len(held) >= LOOKED_MAX:
        print_note(f"{LOOKED_MAX:,} messages did not match; the rest of the queue was not looked at")
    print_done(f"{counted(moved, 'message')} moved from queue '{name}'", {"moved_count": moved}, output)


def _publish(connection: "Connection", message: "Message", exchange: str, key: str, held: "list[Message]") -> None:
    """Publish a copy and wait for its confirm; a message that cannot be published stays in its queue."""
    try:
        connection.publish(message.body, exchange, key, message.properties, mandatory=True)
    except BaseException:
        held.append(message)
        raise


def _header(pair: str | None) -> tuple[str, str] | None:
    if pair is None:
        return None
    name, equals, text = pair.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"'{pair}' is not NAME=VALUE", param_hint="--header")
    return name, text


def _matches(message: "Message", routing_key: str | None, header: tuple[str, str] | None) -> bool:
    if routing_key is not None and message.routing_key != routing_key:
        return False
    return header is None or _is_value(message.headers.get(header[0]), header[1])


def _is_value(value: object, wanted: str) -> bool:
    """Return whether a header has this value: a text, or a number or truth value as it is written."""
    if isinstance(value, str):
        return value == wanted
    with suppress(ValueError):
        return isinstance(value, bool | int) and type(json.loads(wanted)) is type(value) and json.loads(wanted) == value
    return False


def _described(message: "Stored", sequence: int) -> dict[str, Any]:
    described: dict[str, Any] = {
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "sequence": sequence,
        "stored_at_ms": message.stored_at_ms,
        "properties": described_properties(message.properties),
        "headers": dict(message.headers),
    }
    try:
        return {"body": message.body.decode(), **described}
    except UnicodeDecodeError:
        return {"body_base64": message.body, **described}
