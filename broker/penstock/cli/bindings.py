"""`penstock binding`: list, add and delete bindings from an exchange to a queue or to another exchange."""

from typing import Annotated

import typer

from penstock.cli.options import DEFAULT_URI, Arguments, Json, Uri, connected, read_fields
from penstock.cli.output import print_done, print_records

__all__ = ["app"]

app = typer.Typer(help="Bindings of the URI's vhost.", no_args_is_help=True)
COLUMNS = ("source", "destination_kind", "destination", "routing_key", "arguments")

Source = Annotated[str, typer.Argument(help="The exchange that messages come from.")]
Destination = Annotated[str, typer.Argument(help="The queue, or with --to-exchange the exchange, that they go to.")]
RoutingKey = Annotated[str, typer.Option("--routing-key", "-r")]
ToExchange = Annotated[bool, typer.Option("--to-exchange", help="The destination is an exchange.")]


@app.command("list")
def show(
    context: typer.Context,
    source: Annotated[str | None, typer.Option("--source", help="Only those of this exchange.")] = None,
    destination: Annotated[str | None, typer.Option("--destination", help="Only those to this one.")] = None,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """List the bindings."""
    with connected(context, uri) as connection:
        print_records(connection.admin.list_bindings(source, destination), COLUMNS, is_json)


@app.command()
def add(
    context: typer.Context,
    source: Source,
    destination: Destination,
    routing_key: RoutingKey = "",
    to_exchange: ToExchange = False,
    argument: Arguments = None,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Let messages of an exchange that match reach a queue or an exchange."""
    with connected(context, uri) as connection:
        verb = connection.bind_exchange if to_exchange else connection.bind_queue
        verb(destination, source, routing_key, read_fields(argument))
    print_done(f"'{source}' -> '{destination}' by '{routing_key}' is there", _named(source, destination), is_json)


@app.command()
def delete(
    context: typer.Context,
    source: Source,
    destination: Destination,
    routing_key: RoutingKey = "",
    to_exchange: ToExchange = False,
    argument: Arguments = None,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Delete a binding; routing key and arguments name it together with its ends."""
    with connected(context, uri) as connection:
        verb = connection.unbind_exchange if to_exchange else connection.unbind_queue
        verb(destination, source, routing_key, read_fields(argument))
    print_done(f"'{source}' -> '{destination}' by '{routing_key}' deleted", _named(source, destination), is_json)


def _named(source: str, destination: str) -> dict[str, str]:
    return {"source": source, "destination": destination}
