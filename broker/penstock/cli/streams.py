"""`penstock stream`: declare and delete streams, publish to them and read them, see where they and their
groups, stages and producers stand.

A body goes in as it is given and comes out as it was stored, followed by a line end; with `--json` each message is one
line.
"""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.messages import INTERRUPTED, advance, chunks, described_properties, lines
from penstock.cli.options import DEFAULT_URI, Arguments, Json, Uri, connected, read_fields
from penstock.cli.output import print_done, print_json, print_note, print_records, print_rows, progress

if TYPE_CHECKING:
    from penstock import StreamMessage

__all__ = ["app"]

app = typer.Typer(help="Streams of the URI's vhost: read by offset, kept by retention.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="The stream.")]
Part = Annotated[str, typer.Argument(help="A stream, or one of its partitions.")]
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
PRODUCER_COLUMNS = ("name", "sequence", "used", "is_open")
GROUP_COLUMNS = ("name", "partition", "offset", "lag", "reader_count")


@app.command()
def declare(
    context: typer.Context,
    name: Name,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="Number of partitions; cannot be changed later.")
    ] = 1,
    max_age: Annotated[
        str | None, typer.Option("--max-age", help="Older messages go: 30s, 10m, 12h, 7D, 1M, 1Y.")
    ] = None,
    max_bytes: Annotated[int | None, typer.Option("--max-bytes", help="Of a partition: the oldest go first.")] = None,
    dedicated: Annotated[bool, typer.Option("--dedicated", help="Each partition has a log of its own.")] = False,
    argument: Arguments = None,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Make a stream, or check that it is as asked."""
    with connected(context, uri) as connection:
        declared = connection.declare_stream(
            name, partitions, max_age, max_bytes, read_fields(argument), dedicated=dedicated
        )
    count = len(declared.partitions)
    print_done(f"stream '{name}' is there with {count} partition{'s' if count > 1 else ''}", declared, is_json)


@app.command()
def delete(context: typer.Context, name: Name, uri: Uri = DEFAULT_URI, is_json: Json = False) -> None:
    """Delete a stream with all its partitions and messages."""
    with connected(context, uri) as connection:
        dropped = connection.delete_stream(name)
    print_done(f"stream '{name}' deleted with {dropped:,} messages", {"dropped_count": dropped}, is_json)


@app.command("list")
def show(context: typer.Context, uri: Uri = DEFAULT_URI, is_json: Json = False) -> None:
    """List the streams and what they hold."""
    with connected(context, uri) as connection:
        print_records(connection.admin.list_streams(), STREAM_COLUMNS, is_json)


@app.command()
def publish(
    context: typer.Context,
    name: Part,
    body: Annotated[str, typer.Argument(help="The message, or - for one message per line of stdin.")] = "-",
    key: Annotated[str | None, typer.Option("--key", "-k", help="Places it among the partitions.")] = None,
    separator: Annotated[
        str | None, typer.Option("--key-separator", help="Each line begins with its key, up to this text.")
    ] = None,
    header: Annotated[list[str] | None, typer.Option("--header", help="NAME=VALUE, more than once.")] = None,
    producer: Annotated[
        str | None, typer.Option("--producer", help="The line's number is its sequence: repeated, nothing is doubled.")
    ] = None,
    level: Annotated[str | None, typer.Option("--level", help="os or disk: what the confirm promises.")] = None,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Publish a message, or a message per line of stdin, and wait for the confirms."""
    headers = read_fields(header) or None
    messages = (_keyed(each, key, separator) for each in (lines() if body == "-" else iter([body.encode()])))
    count = 0
    with connected(context, uri, level=level) as connection, progress(is_json) as shown:
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
    print_done(f"{count:,} published and confirmed", {"published": count}, is_json)


@app.command()
def read(
    context: typer.Context,
    name: Part,
    from_: Annotated[
        str, typer.Option("--from", help="first, last, next, an offset, -N for the last N, a time, or an age as 1h.")
    ] = "next",
    until: Annotated[
        str | None, typer.Option("--until", help="next: what is there now; or an offset, or a time.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after so many.")] = None,
    idle: Annotated[float | None, typer.Option("--idle", min=0, help="End after so many seconds without one.")] = None,
    group: Annotated[
        str, typer.Option("--group", help="Go on behind its stored offset, and store what was read.")
    ] = "",
    single_active: Annotated[
        bool, typer.Option("--single-active", help="Of the group's readers one at a time gets a partition.")
    ] = False,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Print messages as they come, until --until, --count, --idle or Ctrl-C ends it. They stay in the stream."""
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
        try:
            with reader:
                for message in reader:
                    _print_message(message, is_json)
        except KeyboardInterrupt:
            print_note("interrupted")
            raise typer.Exit(INTERRUPTED) from None


@app.command()
def offsets(
    context: typer.Context,
    name: Part,
    at: Annotated[
        str | None, typer.Option("--at", help="Also the first offset stored at this time or later; or an age as 1h.")
    ] = None,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Show where each partition begins and ends."""
    with connected(context, uri) as connection:
        found = connection.stream(name).offsets(at)
    if is_json:
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
    print_rows(rows, OFFSET_COLUMNS)


@app.command()
def trim(
    context: typer.Context,
    name: Part,
    before: Annotated[int, typer.Option("--before", min=0, help="Delete messages below this offset.")],
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Drop the oldest messages of a stream or a partition: what whole segments of the log hold of them."""
    with connected(context, uri) as connection:
        first = connection.stream(name).trim(before)
    print_done(f"the first offset of '{name}' is {first}", {"first": first}, is_json)


@app.command()
def groups(
    context: typer.Context,
    name: Part,
    store: Annotated[
        str | None, typer.Option("--store", help="GROUP=OFFSET: the group is done with everything up to it.")
    ] = None,
    forget: Annotated[str | None, typer.Option("--forget", help="Delete what is stored of this group.")] = None,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Show how far each group is done, or change it."""
    with connected(context, uri) as connection:
        stream = connection.stream(name)
        if store is not None:
            group, _, offset = store.rpartition("=")
            if not group or not offset.isdecimal():
                raise typer.BadParameter(f"'{store}' is not GROUP=OFFSET")
            stream.store(group, int(offset))
        if forget is not None and not stream.delete_group(forget):
            print_note(f"nothing was stored of group '{forget}'")
        print_records(stream.groups(), GROUP_COLUMNS, is_json)


@app.command()
def stages(
    context: typer.Context,
    delete_name: Annotated[
        str | None, typer.Option("--delete", help="Delete this stage, with its rows and what it knows of batches.")
    ] = None,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """Show the stages, where rows wait to be published, or delete one that nobody uses any more."""
    with connected(context, uri) as connection:
        if delete_name is not None:
            dropped = connection.admin.delete_stage(delete_name)
            print_done(f"stage '{delete_name}' deleted with {dropped:,} rows", {"dropped_count": dropped}, is_json)
            return
        found = connection.admin.list_stages()
    if is_json:
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
    print_rows(rows, STAGE_COLUMNS)


@app.command()
def producers(
    context: typer.Context,
    delete_name: Annotated[
        str | None, typer.Option("--delete", help="Forget this name: what it sends again is stored again.")
    ] = None,
    uri: Uri = DEFAULT_URI,
    is_json: Json = False,
) -> None:
    """List deduplicating publishers, or delete one."""
    with connected(context, uri) as connection:
        if delete_name is not None and not connection.admin.delete_producer(delete_name):
            print_note(f"there is no producer '{delete_name}'")
        found = connection.admin.list_producers()
    if is_json:
        print_json(found)
        return
    print_rows([(each.name, each.sequence, _time(each.used_at_ms), each.is_open) for each in found], PRODUCER_COLUMNS)


def _keyed(line: bytes, key: str | None, separator: str | None) -> tuple[bytes | None, bytes]:
    if separator:
        before, found, after = line.partition(separator.encode())
        if found:
            return before, after
    return (None if key is None else key.encode()), line


def _print_message(message: "StreamMessage", is_json: bool) -> None:
    if is_json:
        print_json(_described(message))
        sys.stdout.flush()
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(message.body + b"\n")
    sys.stdout.buffer.flush()


def _described(message: "StreamMessage") -> dict[str, Any]:
    """What is not UTF-8 stands in base64, under another name."""
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
