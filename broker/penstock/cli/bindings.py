"""`penstock binding`: list, add and delete bindings from an exchange to a queue or to another exchange."""

from typing import Annotated

import typer

from penstock.cli.group import Commands
from penstock.cli.options import Arguments, Uri, complete_exchanges, complete_queues, connected, read_fields
from penstock.cli.output import Output, print_done, print_records

__all__ = ["app"]

app = Commands(help="Manage bindings.")
COLUMNS = ("source", "destination_kind", "destination", "routing_key", "arguments")

Source = Annotated[str, typer.Argument(help="The exchange.", autocompletion=complete_exchanges)]
Destination = Annotated[
    str, typer.Argument(help="The queue, or with --to-exchange the exchange.", autocompletion=complete_queues)
]
RoutingKey = Annotated[str, typer.Option("--routing-key", "-r", help="The routing key.")]
ToExchange = Annotated[bool, typer.Option("--to-exchange", help="The destination is an exchange.")]


@app.command("list")
def show(
    context: typer.Context,
    source: Annotated[
        str | None, typer.Option("--source", help="Only those of this exchange.", autocompletion=complete_exchanges)
    ] = None,
    destination: Annotated[
        str | None, typer.Option("--destination", help="Only those to this queue or exchange.")
    ] = None,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """List bindings."""
    with connected(context, uri) as connection:
        print_records(connection.admin.list_bindings(source, destination), COLUMNS, output)


@app.command()
def add(
    context: typer.Context,
    source: Source,
    destination: Destination,
    routing_key: RoutingKey = "",
    to_exchange: ToExchange = False,
    argument: Arguments = None,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Bind a queue or an exchange to an exchange."""
    with connected(context, uri) as connection:
        verb = connection.bind_exchange if to_exchange else connection.bind_queue
        verb(destination, source, routing_key, read_fields(argument))
    print_done(f"'{source}' -> '{destination}' by '{routing_key}' added", _named(source, destination), output)


@app.command()
def delete(
    context: typer.Context,
    source: Source,
    destination: Destination,
    routing_key: RoutingKey = "",
    to_exchange: ToExchange = False,
    argument: Arguments = None,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Delete a binding."""
    with connected(context, uri) as connection:
        verb = connection.unbind_exchange if to_exchange else connection.unbind_queue
        verb(destination, source, routing_key, read_fields(argument))
    print_done(f"'{source}' -> '{destination}' by '{routing_key}' deleted", _named(source, destination), output)


def _named(source: str, destination: str) -> dict[str, str]:
    return {"source": source, "destination": destination}
