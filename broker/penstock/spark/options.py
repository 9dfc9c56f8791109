"""Options of `format("penstock")`, parsed from Spark's texts.

Names follow the Kafka source where they mean the same. Spark lower-cases option names, so case does not matter. An
option that is unknown, or that has no effect where it was given, is refused. This module knows neither Spark nor the
wire.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from penstock.client.uri import parse_uri
from penstock.spark.credentials import Credentials, full_uri
from penstock.spark.errors import OptionError
from penstock.spark.hints import hint_for
from penstock.spark.places import Place, parse_offsets, parse_times
from penstock.spark.shares import SPLITS_MAX, Limits
from penstock.spark.subscriptions import Subscription, parse_assignment, parse_list, parse_pattern

__all__ = [
    "CORRUPT_COLUMN",
    "Decoding",
    "ReadOptions",
    "WriteOptions",
    "parse_read_options",
    "parse_write_options",
]

T = TypeVar("T")

POLL_TIMEOUT_MS = 1_000
POLL_TIMEOUT_MS_MAX = 60_000
# A restarting broker was back within this time on all machines tried.
RETRY_SECONDS = 30
RETRY_SECONDS_MAX = 86_400
# The highest number of a batch that the broker takes of a producer.
BATCH_MAX = 2**30 - 2
# A name in the broker has 255 bytes, of which the target and the task take some.
NAME_BYTES_MAX = 200
TRIGGER_DELAY_MS = 15 * 60_000
# A year, as longer than any query waits.
TRIGGER_DELAY_MS_MAX = 366 * 86_400_000
DURATION = re.compile(r"([0-9]+) *([a-z]*)")
UNITS_MS = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
EXAMPLES = {"json": "'id BIGINT, name STRING'", "avro": "@order.avsc"}
DIGEST_LENGTH = 16
SCHEMA_BYTES_MAX = 4 * 2**20
# The column for the text of bad records, as Spark's JSON source names it.
CORRUPT_COLUMN = "_corrupt_record"
DECODERS = ("none", "json", "avro", "protobuf")
KAFKA = "kafka"


@dataclass(frozen=True, slots=True)
class Decoding:
    """How bodies become columns, and where bad ones are sent."""

    format: str = "none"
    # For json: fields as in CREATE TABLE. For avro: an Avro schema.
    schema: str = ""
    dead_letter_stream: str = ""
    # For protobuf: a descriptor set as bytes, and the name of a message in it.
    descriptors: bytes = b""
    message: str = ""
    # Leave bad records out without publishing them.
    drops: bool = False
    # For json: the column for the text of bad records, when it was named; else CORRUPT_COLUMN, if the schema has it.
    corrupt_column: str = ""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    # The stream or queue by name, or the empty text when the subscription says more.
    stream: str
    uri: str = field(repr=False)
    starting: Place | None
    ending: Place | None
    max_offsets: int | None
    max_bytes: int | None
    min_partitions: int
    fail_on_data_loss: bool
    with_headers: bool
    columns: tuple[str, ...]
    key: str | None
    routing_key: str | None
    poll_timeout_ms: int
    group: str
    decoding: Decoding
    retry_seconds: int = RETRY_SECONDS
    # Columns are those of Spark's Kafka source.
    is_kafka: bool = False
    subscription: Subscription = field(default_factory=Subscription)
    # What a start at a time behind the last message is: an error, or the end.
    time_strategy: str = "error"
    min_offsets: int | None = None
    trigger_delay_ms: int = TRIGGER_DELAY_MS
    split_rows_max: int | None = None
    # A header's name and its value.
    header: tuple[str, str] | None = None

    @property
    def limits(self) -> Limits:
        """Return the limits of a batch that is not told to read all."""
        return Limits(self.max_offsets, self.max_bytes, self.min_partitions, self.split_rows_max)

    @property
    def filters(self) -> dict[str, Any]:
        """Return the part of a ticket that says which rows the broker sends."""
        header = None if self.header is None else {"name": self.header[0], "value": self.header[1]}
        wanted = {"key_is": self.key, "routing_key_is": self.routing_key, "header_is": header}
        return {name: value for name, value in wanted.items() if value is not None}

    @property
    def dead_letters(self) -> str:
        """Return a digest of all that decides which records are bad, where they go, and where the read began.

        It is part of the producer name of dead letters: two reads in one query that differ in it publish apart. Under
        one name the broker would take the earlier bad records of a read for repetitions, when the other read is ahead.
        """
        settings = (self.decoding, self.key, self.routing_key, self.header, self.starting)
        return sha256(repr(settings).encode()).hexdigest()[:DIGEST_LENGTH]


@dataclass(frozen=True, slots=True)
class WriteOptions:
    uri: str = field(repr=False)
    stream: str
    exchange: str | None
    routing_key: str
    durability: str
    producer: str
    staged: bool = False
    txn_app_id: str = ""
    txn_version: int | None = None
    retry_seconds: int = RETRY_SECONDS
    # Columns are those of Spark's Kafka sink.
    is_kafka: bool = False


class Given:
    """The options as passed by Spark. Each is taken once; one that is left over is refused."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._left = {name.lower(): (name, str(value)) for name, value in options.items()}
        self._known: list[str] = []

    def take(self, name: str, parse: Callable[[str], T], default: T, *, is_secret: bool = False) -> T:
        """Return the parsed option, or the default. An error never shows a secret."""
        self._known.append(name)
        found = self._left.pop(name.lower(), None)
        if found is None:
            return default
        try:
            return parse(found[1])
        except ValueError as error:
            if is_secret:
                raise OptionError(f"option '{name}': {error}") from None
            raise OptionError(f"option '{name}' is '{found[1]}': {error}") from error

    def refuse_rest(self, verb: str) -> None:
        for name, _ in self._left.values():
            advice = hint_for(name) or f"valid are: {', '.join(self._known)}"
            raise OptionError(f"there is no option '{name}' to {verb} penstock; {advice}")


def parse_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Parse the options of a read; raise OptionError."""
    given = Given(options)
    stream, subscription = taken_streams(given)
    strategy = given.take("startingOffsetsByTimestampStrategy", one_of("error", "latest"), None)
    delay_ms = given.take("maxTriggerDelay", duration_ms, None)
    parsed = ReadOptions(
        stream=stream,
        subscription=subscription,
        uri=taken_uri(given),
        starting=taken_place(given, "starting"),
        ending=taken_place(given, "ending"),
        time_strategy=strategy or "error",
        min_offsets=given.take("minOffsetsPerTrigger", positive, None),
        trigger_delay_ms=TRIGGER_DELAY_MS if delay_ms is None else delay_ms,
        split_rows_max=given.take("maxRecordsPerPartition", positive, None),
        max_offsets=given.take("maxOffsetsPerTrigger", positive, None),
        max_bytes=given.take("maxBytesPerTrigger", positive, None),
        min_partitions=given.take("minPartitions", bounded(1, SPLITS_MAX), 1),
        fail_on_data_loss=given.take("failOnDataLoss", boolean, True),
        with_headers=given.take("includeHeaders", boolean, False),
        columns=given.take("columns", names, ()),
        key=given.take("keyIs", text, None),
        routing_key=given.take("routingKeyIs", text, None),
        header=given.take("headerIs", name_and_value, None),
        poll_timeout_ms=given.take("pollTimeoutMs", bounded(0, POLL_TIMEOUT_MS_MAX), POLL_TIMEOUT_MS),
        group=given.take("group", text, ""),
        decoding=taken_decoding(given),
        retry_seconds=taken_retry_seconds(given),
        is_kafka=taken_schema(given) == KAFKA,
    )
    given.refuse_rest("read from")
    if subscription == Subscription():
        raise OptionError(
            "name the stream to read: .option('stream', 'events'); 'subscribe', 'subscribePattern' and 'assign' read "
            "several"
        )
    if delay_ms is not None and parsed.min_offsets is None:
        raise OptionError(
            "'maxTriggerDelay' belongs to 'minOffsetsPerTrigger', which delays batches; give both or none"
        )
    if strategy is not None and (parsed.starting is None or parsed.starting.kind != "times"):
        raise OptionError("'startingOffsetsByTimestampStrategy' belongs to a start at a time; leave it out")
    refuse_contradictions(parsed)
    return parsed


def refuse_contradictions(options: ReadOptions) -> None:
    """Raise OptionError for options that are each right, and together are not what anyone means."""
    if options.min_offsets is not None and options.min_offsets > (options.max_offsets or options.min_offsets):
        raise OptionError("'minOffsetsPerTrigger' must not be above 'maxOffsetsPerTrigger'")
    dead = options.decoding.dead_letter_stream
    if dead and options.subscription.has(dead, dead):
        raise OptionError(
            f"'deadLetterStream' is '{dead}', which the read has too: each bad record would come again as a new one, "
            "without end; choose another stream, or read fewer"
        )
    if options.with_headers and options.columns and not {"headers", "properties"} & set(options.columns):
        raise OptionError(
            "'includeHeaders' adds columns, and 'columns' names all; add 'headers' to it, or leave one out"
        )
    if options.ending is not None and options.ending.is_first:
        raise OptionError("a read that ends at the first message has none; leave the end out, or choose a later one")


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a write; raise OptionError."""
    given = Given(options)
    parsed = WriteOptions(
        uri=taken_uri(given),
        stream=taken_target(given),
        exchange=given.take("exchange", text, None),
        routing_key=given.take("routingKey", text, ""),
        durability=given.take("durability", one_of("os", "disk", "replicated"), ""),
        producer=given.take("producer", text, ""),
        staged=given.take("staged", boolean, False),
        txn_app_id=given.take("txnAppId", text, ""),
        txn_version=given.take("txnVersion", bounded(0, BATCH_MAX), None),
        retry_seconds=taken_retry_seconds(given),
        is_kafka=taken_schema(given) == KAFKA,
    )
    # Spark passes its own option to the sink as well.
    given.take("checkpointLocation", text, "")
    given.take("queryName", text, "")
    given.refuse_rest("write to")
    if parsed.is_kafka and not parsed.stream and parsed.exchange is None:
        raise OptionError(
            "name the stream to write to with the option 'stream' or 'topic'; a column 'topic' cannot choose it for "
            "each row: write the rows of each topic by a query of their own"
        )
    if bool(parsed.stream) == (parsed.exchange is not None):
        raise OptionError("give either 'stream' or 'exchange' to write to, not both and not neither")
    if parsed.stream and parsed.routing_key:
        raise OptionError("'routingKey' belongs to 'exchange'; rows go to a stream's partitions by their column 'key'")
    if parsed.staged and parsed.durability:
        raise OptionError("'staged' rows are always on the disk before they are published; leave 'durability' out")
    if bool(parsed.txn_app_id) != (parsed.txn_version is not None):
        raise OptionError("'txnAppId' and 'txnVersion' belong together; give both or none of them")
    if parsed.txn_app_id and parsed.producer:
        raise OptionError("'txnAppId' names the producer; leave 'producer' out")
    if len((parsed.producer or parsed.txn_app_id).encode()) > NAME_BYTES_MAX:
        raise OptionError(f"'producer' and 'txnAppId' have at most {NAME_BYTES_MAX} bytes; choose a shorter name")
    return parsed


def taken_uri(given: Given) -> str:
    """Take the URI and the credentials beside it; return one URI with both."""

    def checked(value: str) -> str:
        parse_uri(value)
        return value

    uri = given.take("uri", checked, "", is_secret=True)
    credentials = Credentials(
        # A user's name with a password behind it must not be shown.
        user=given.take("user", user_name, "", is_secret=True),
        password=given.take("password", text, "", is_secret=True),
        # Its value may be the password, by mistake.
        password_file=given.take("passwordFile", first_line, "", is_secret=True),
        token=given.take("token", text, "", is_secret=True),
    )
    return full_uri(uri, credentials, os.environ)


def taken_schema(given: Given) -> str:
    return given.take("schema", one_of("penstock", KAFKA), "penstock")


def taken_target(given: Given) -> str:
    """Take the stream to write to; `topic` is the Kafka sink's word for it."""
    named = {name: given.take(name, text, "") for name in ("stream", "path", "topic")}
    found = {name: value for name, value in named.items() if value}
    if len(set(found.values())) > 1:
        raise OptionError(f"give only one of {' and '.join(map(repr, found))}")
    return next(iter(found.values()), "")


def taken_retry_seconds(given: Given) -> int:
    return given.take("retrySeconds", bounded(0, RETRY_SECONDS_MAX), RETRY_SECONDS)


def taken_streams(given: Given) -> tuple[str, Subscription]:
    """Take the one option that says what to read; return the stream's name, where it is one, and the subscription."""
    stream = given.take("stream", text, "")
    path = given.take("path", text, "")
    if stream and path and path != stream:
        raise OptionError(f"both 'stream' and load() name a stream, '{stream}' and '{path}'; give only one of them")
    chosen = {
        "stream": Subscription(names=(stream,)) if stream else None,
        "path": Subscription(names=(path,)) if path and not stream else None,
        "subscribe": given.take("subscribe", parse_list, None),
        "subscribePattern": given.take("subscribePattern", parse_pattern, None),
        "assign": given.take("assign", parse_assignment, None),
    }
    found = {name: each for name, each in chosen.items() if each is not None}
    if len(found) > 1:
        raise OptionError(f"give only one of {' and '.join(found)}, which say what to read")
    return stream or path, next(iter(found.values()), Subscription())


def taken_place(given: Given, prefix: str) -> Place | None:
    """Take at most one of the three options that set a start or an end."""
    places = {
        f"{prefix}Offsets": given.take(f"{prefix}Offsets", parse_offsets, None),
        f"{prefix}Timestamp": given.take(f"{prefix}Timestamp", time, None),
        f"{prefix}OffsetsByTimestamp": given.take(f"{prefix}OffsetsByTimestamp", parse_times, None),
    }
    found = {name: place for name, place in places.items() if place is not None}
    if len(found) > 1:
        raise OptionError(f"give only one of {' and '.join(found)}")
    return next(iter(found.values()), None)


def taken_decoding(given: Given) -> Decoding:
    decoding = Decoding(
        format=given.take("parsed", one_of(*DECODERS), "none"),
        schema=given.take("parsedSchema", text_or_file, ""),
        dead_letter_stream=given.take("deadLetterStream", text, ""),
        descriptors=given.take("parsedDescriptor", content, b""),
        message=given.take("parsedMessage", text, ""),
        drops=given.take("dropBadRecords", boolean, False),
        corrupt_column=given.take("columnNameOfCorruptRecord", text, ""),
    )
    if decoding.format == "none" and decoding != Decoding():
        raise OptionError(
            "'parsedSchema', 'parsedDescriptor', 'parsedMessage', 'deadLetterStream', 'dropBadRecords' and "
            "'columnNameOfCorruptRecord' need 'parsed'"
        )
    if decoding.drops and decoding.dead_letter_stream:
        raise OptionError("give only one of 'deadLetterStream', which publishes bad records, and 'dropBadRecords'")
    if decoding.corrupt_column and decoding.format != "json":
        raise OptionError(
            "'columnNameOfCorruptRecord' is for parsed=json, whose bodies are text; keep others in a 'deadLetterStream'"
        )
    is_protobuf = decoding.format == "protobuf"
    if is_protobuf and (decoding.schema or not decoding.descriptors or not decoding.message):
        raise OptionError(
            "parsed=protobuf needs 'parsedDescriptor', a file, and 'parsedMessage', and no 'parsedSchema'"
        )
    if not is_protobuf and (decoding.descriptors or decoding.message):
        raise OptionError("'parsedDescriptor' and 'parsedMessage' are for parsed=protobuf")
    if decoding.format in EXAMPLES and not decoding.schema:
        raise OptionError(f"parsed={decoding.format} needs 'parsedSchema', such as {EXAMPLES[decoding.format]}")
    return decoding


def text_or_file(value: str) -> str:
    """Return the value, or the content of the file when it is `@` and a path."""
    return content(value[1:]).decode() if value.startswith("@") else text(value)


def content(path: str) -> bytes:
    """Return the file's content. It is read where the query is built, so executors do not need the file."""
    try:
        file = Path(path)
        if file.stat().st_size > SCHEMA_BYTES_MAX:
            raise ValueError(f"the file has more than {SCHEMA_BYTES_MAX} bytes")
        return file.read_bytes()
    except OSError as error:
        raise ValueError(f"the file cannot be read: {error.strerror}") from error


def first_line(path: str) -> str:
    line = content(path).partition(b"\n")[0].rstrip(b"\r")
    try:
        return text(line.decode())
    except ValueError:
        raise ValueError("its first line must be a password in UTF-8") from None


def text(value: str) -> str:
    if not value:
        raise ValueError("it must not be empty")
    return value


def user_name(value: str) -> str:
    if ":" in value:
        raise ValueError("it must not contain ':'; put a password into 'password' or 'passwordFile'")
    return text(value)


def name_and_value(value: str) -> tuple[str, str]:
    name, separator, rest = value.partition("=")
    if not name or not separator:
        raise ValueError("it must be a header's name, '=' and its value, such as country=de")
    return name, rest


def boolean(value: str) -> bool:
    known = {"true": True, "false": False}
    if value.lower() not in known:
        raise ValueError("it must be true or false")
    return known[value.lower()]


def positive(value: str) -> int:
    return bounded(1, 2**63 - 1)(value)


def bounded(least: int, most: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ValueError("it must be a whole number") from None
        if not least <= number <= most:
            raise ValueError(f"it must be from {least} to {most}")
        return number

    return parse


def one_of(*words: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.lower() not in words:
            raise ValueError(f"it must be one of {', '.join(words)}")
        return value.lower()

    return parse


def names(value: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in value.split(","))
    if not all(found) or len(set(found)) < len(found):
        raise ValueError("it must be names of columns with commas between them, each once")
    return found


def time(value: str) -> Place:
    return Place("times", everywhere=bounded(0, 2**53)(value))


def duration_ms(value: str) -> int:
    """Parse a time as Spark has it, such as 15m; without a unit it is in milliseconds."""
    found = DURATION.fullmatch(value.strip().lower())
    if found is None or found.group(2) not in UNITS_MS:
        raise ValueError("it must be a number and a unit, such as 500ms, 30s, 15m, 2h or 1d")
    return bounded(0, TRIGGER_DELAY_MS_MAX // UNITS_MS[found.group(2)])(found.group(1)) * UNITS_MS[found.group(2)]
