"""The commands of `penstock stream`: declare, delete, publish to and read streams, and show their state.

The state includes groups, stages and producers.

A body goes in as it is given and comes out as it was stored, followed by a line end. With `--output json` each message
is one line.
"""

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.group import Commands
from penstock.cli.messages import INTERRUPTED, advance, chunks, described_properties, lines
from penstock.cli.options import Arguments, Durability, Uri, complete_streams, connected, read_fields
from penstock.cli.output import (
    Format,
    Output,
    counted,
    print_done,
    print_json,
    print_note,
    print_records,
    print_rows,
    progress,
)

if TYPE_CHECKING:
    from penstock import StreamMessage

__all__ = ["app"]

app = Commands(help="Manage, publish to and read streams.")
Name = Annotated[str, typer.Argument(help="The stream.", autocompletion=complete_streams)]
Part = Annotated[str, typer.Argument(help="A stream, or one of its partitions.", autocompletion=complete_streams)]
STREAM_COLUMNS = ("name", "partitions", "arguments", "message_count", "bytes", "reader_count")
OFFSET_COLUMNS = ("partition", "first", "next", "message_count", "bytes", "first_at", "last_at", "at_timestamp")
STAGE_COLUMNS = (
    "name",
    "exchange",
    "routing_key",
    "row_count",
    "bytes",
    "last_batch",
    "is_copying",
    "last_staged",
)
PRODUCER_COLUMNS = ("name", "owner", "sequence", "used", "is_open")
GROUP_COLUMNS = ("name", "partition", "offset", "lag", "reader_count")


@app.command()
def declare(
    context: typer.Context,
    name: Name,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="Number of partitions; cannot be changed.")
    ] = 1,
    max_age: Annotated[
        str | None, typer.Option("--max-age", help="Delete older messages: 30s, 10m, 12h, 7D, 1M, 1Y.")
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", help="Delete a partition's oldest messages above this.")
    ] = None,
    dedicated: Annotated[bool, typer.Option("--dedicated", help="Give each partition a log of its own.")] = False,
    argument: Arguments = None,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Declare a stream."""
    with connected(context, uri) as connection:
        declared = connection.declare_stream(
            name, partitions, max_age, max_bytes, read_fields(argument), dedicated=dedicated
        )
    count = len(declared.partitions)
    print_done(f"stream '{name}' declared with {counted(count, 'partition')}", declared, output)


@app.command()
def delete(context: typer.Context, name: Name, uri: Uri = None, output: Output = None) -> None:
    """Delete a stream and its messages."""
    with connected(context, uri) as connection:
        dropped = connection.delete_stream(name)
    print_done(f"stream '{name}' deleted with {counted(dropped, 'message')}", {"dropped_count": dropped}, output)


@app.command("list")
def show(context: typer.Context, uri: Uri = None, output: Output = None) -> None:
    """List streams."""
    with connected(context, uri) as connection:
        print_records(connection.admin.list_streams(), STREAM_COLUMNS, output)


@app.command()
def publish(
    context: typer.Context,
    name: Part,
    body: Annotated[str, typer.Argument(help="The message, or - for a message per line of stdin.")] = "-",
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key that selects the partition.")] = None,
    separator: Annotated[
        str | None, typer.Option("--key-separator", help="Text that ends the key at the start of a line.")
    ] = None,
    header: Annotated[list[str] | None, typer.Option("--header", help="NAME=VALUE; repeatable.")] = None,
    producer: Annotated[
        str | None, typer.Option("--producer", help="Deduplicate by this name and the line number.")
    ] = None,
    durability: Durability = None,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Publish messages and wait for the confirms.

    With - each line of stdin is a message: its line end is removed and nothing else, and an empty line is an empty
    message.
    """
    headers = read_fields(header) or None
    messages = (_keyed(each, key, separator) for each in (lines() if body == "-" else iter([os.fsencode(body)])))
    count = 0
    with connected(context, uri, durability=durability) as connection, progress(output) as shown:
        stream = connection.stream(name)
        named = None if producer is None else stream.publisher(producer)
        for chunk in chunks(messages):
            if named is not None:
                named.publish_keyed(chunk, headers=headers, sequence=count + 1)
            elif separator is not None:
                stream.publish_keyed(chunk, headers=headers)
            else:
                stream.publish_many([each for _, each in chunk], key, headers=headers)
            count += len(chunk)
            advance(shown, "publishing", count)
    print_done(f"{count:,} published and confirmed", {"published": count}, output)


@app.command()
def read(
    context: typer.Context,
    name: Part,
    from_: Annotated[str, typer.Option("--from", help="first, last, next, OFFSET, -N, a time or an age.")] = "next",
    until: Annotated[str | None, typer.Option("--until", help="Where to end: next (now), OFFSET or a time.")] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after this many.")] = None,
    idle: Annotated[
        float | None, typer.Option("--idle", min=0, help="End after this many seconds without a message.")
    ] = None,
    group: Annotated[str, typer.Option("--group", help="Continue at this group's offset, and store it.")] = "",
    single_active: Annotated[
        bool, typer.Option("--single-active", help="Let one reader of the group read a partition.")
    ] = False,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Read and print messages until Ctrl-C.

    They stay in the stream. --from takes -N for the last N messages, and an age such as 1h.
    """
    with connected(context, uri) as connection:
        reader = connection.stream(name).read(
            from_,
            until=until,
            count=count,
            group=group,
            single_active=single_active,
            auto_store=bool(group),
            idle_timeout=idle,
        )
        if from_ == "next" and not group and until is None:
            print_note("waiting for new messages; --from first reads the stored ones, too")
        try:
            with reader:
                for message in reader:
                    _print_message(message, output)
        except KeyboardInterrupt:
            print_note("interrupted")
            raise typer.Exit(INTERRUPTED) from None


@app.command()
def offsets(
    context: typer.Context,
    name: Part,
    at: Annotated[str | None, typer.Option("--at", help="Also show the first offset since a time or an age.")] = None,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Show the first and next offset of each partition."""
    with connected(context, uri) as connection:
        found = connection.stream(name).offsets(at)
    if output is Format.JSON:
        print_json(found)
        return
    rows = [
        (
            each.partition,
            each.first,
            each.next,
            each.message_count,
            each.bytes,
            _time(each.first_timestamp_ms),
            _time(each.last_timestamp_ms),
            each.at_timestamp,
        )
        for each in found
    ]
    print_rows(rows, OFFSET_COLUMNS, output)


@app.command()
def trim(
    context: typer.Context,
    name: Part,
    before: Annotated[int, typer.Option("--before", min=0, help="Delete messages below this offset.")],
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Delete the oldest messages, in whole segments."""
    with connected(context, uri) as connection:
        first = connection.stream(name).trim(before)
    print_done(f"the first offset of '{name}' is {first}", {"first": first}, output)


@app.command()
def groups(
    context: typer.Context,
    name: Part,
    store: Annotated[str | None, typer.Option("--store", help="Store an offset: GROUP=OFFSET.")] = None,
    deleted: Annotated[str | None, typer.Option("--delete", help="Delete this group's offsets.")] = None,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Show or change the offsets of groups."""
    with connected(context, uri) as connection:
        stream = connection.stream(name)
        if store is not None:
            group, _, offset = store.rpartition("=")
            if not group or not offset.isdecimal():
                raise typer.BadParameter(f"'{store}' is not GROUP=OFFSET")
            stream.store(group, int(offset))
        if deleted is not None and not stream.delete_group(deleted):
            print_note(f"group '{deleted}' has no offsets")
        print_records(stream.groups(), GROUP_COLUMNS, output)


@app.command()
def stages(
    context: typer.Context,
    delete_name: Annotated[str | None, typer.Option("--delete", help="Delete this stage with its rows.")] = None,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """List stages of staged publishing, or delete one."""
    with connected(context, uri) as connection:
        if delete_name is not None:
            dropped = connection.admin.delete_stage(delete_name)
            print_done(
                f"stage '{delete_name}' deleted with {counted(dropped, 'row')}", {"dropped_count": dropped}, output
            )
            return
        found = connection.admin.list_stages()
    if output is Format.JSON:
        print_json(found)
        return
    rows = [
        (
            each.name,
            each.exchange,
            each.routing_key,
            each.row_count,
            each.bytes,
            each.last_batch,
            each.is_copying,
            _time(each.last_staged_ms),
        )
        for each in found
    ]
    print_rows(rows, STAGE_COLUMNS, output)


@app.command()
def producers(
    context: typer.Context,
    delete_name: Annotated[
        str | None, typer.Option("--delete", help="Forget this name; its repeats are stored again.")
    ] = None,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """List deduplicating publishers, or delete one."""
    with connected(context, uri) as connection:
        if delete_name is not None and not connection.admin.delete_producer(delete_name):
            print_note(f"no producer '{delete_name}'")
        found = connection.admin.list_producers()
    if output is Format.JSON:
        print_json(found)
        return
    rows = [(each.name, each.owner, each.sequence, _time(each.used_at_ms), each.is_open) for each in found]
    print_rows(rows, PRODUCER_COLUMNS, output)


def _keyed(line: bytes, key: str | None, separator: str | None) -> tuple[bytes | None, bytes]:
    if separator:
        before, found, after = line.partition(separator.encode())
        if found:
            return before, after
    return (None if key is None else key.encode()), line


def _print_message(message: "StreamMessage", output: Format | None) -> None:
    if output is Format.JSON:
        print_json(_described(message))
        sys.stdout.flush()
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(message.body + b"\n")
    sys.stdout.buffer.flush()


def _described(message: "StreamMessage") -> dict[str, Any]:
    """Return a body as text, or in base64 under another name if it is not UTF-8."""
    described: dict[str, Any] = {}
    for name, content in (("body", message.body), ("key", message.key)):
        try:
            described[name] = None if content is None else content.decode()
        except UnicodeDecodeError:
            described[f"{name}_base64"] = content
    return {
        **described,
        "partition": message.partition,
        "offset": message.offset,
        "stored_at_ms": message.stored_at_ms,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "properties": described_properties(message.properties),
        "headers": dict(message.headers),
    }


def _time(milliseconds: int) -> str:
    from datetime import UTC, datetime

    if not milliseconds:
        return ""
    return datetime.fromtimestamp(milliseconds / 1_000, UTC).isoformat(timespec="milliseconds")
