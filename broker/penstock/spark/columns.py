"""Columns of a stream as Spark and Arrow have them, and the conversion between the two.

Spark accepts record batches only in exactly the schema that it derives from its own types, so every batch is converted
here. Columns whose types agree are not copied.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.spark import kafka_columns
from penstock.spark.avro import avro_fields
from penstock.spark.errors import SchemaError
from penstock.spark.options import Decoding, ReadOptions, WriteOptions
from penstock.spark.protobuf import protobuf_fields

__all__ = [
    "PUBLISHED",
    "check_published",
    "conformed",
    "ddl_of",
    "needed",
    "own_columns",
    "parsed_name",
    "publishable",
    "published_schema",
    "shown",
]

PROPERTIES = (
    "content_type STRING, content_encoding STRING, delivery_mode INT, priority INT, correlation_id STRING, "
    "reply_to STRING, expiration STRING, message_id STRING, timestamp TIMESTAMP, type STRING, user_id STRING, "
    "app_id STRING"
)
# As Spark's Kafka source has them.
HEADERS = "ARRAY<STRUCT<key STRING, value BINARY>>"
COLUMNS = {
    "partition": "STRING",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "key": "BINARY",
    "exchange": "STRING",
    "routing_key": "STRING",
    "body": "BINARY",
    "properties": f"STRUCT<{PROPERTIES}>",
    "headers": HEADERS,
}
WITH_HEADERS = ("properties", "headers")
# Columns beside the parsed one, unless others are asked for.
WITH_PARSED = ("partition", "offset", "timestamp", "key", "routing_key")
PARSED = "value"

TEXT = (pa.types.is_string, pa.types.is_large_string)
BYTES = (*TEXT, pa.types.is_binary, pa.types.is_large_binary)


def is_headers(kind: pa.DataType) -> bool:
    """Return whether a column has names with values: a list of structs, or a map."""
    if pa.types.is_map(kind):
        return is_any(kind.key_type, TEXT) and is_any(kind.item_type, BYTES)
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        return False
    parts = {field.name: field.type for field in kind.value_type}
    return parts.keys() == {"key", "value"} and is_any(parts["key"], TEXT) and is_any(parts["value"], BYTES)


def is_any(kind: pa.DataType, kinds: Sequence[Callable[[pa.DataType], bool]]) -> bool:
    return any(is_kind(kind) for is_kind in kinds)


# Columns that can be published, and the Arrow types that they may have.
PUBLISHED: dict[str, tuple[Any, ...]] = {
    "body": BYTES,
    "key": BYTES,
    "routing_key": TEXT,
    "headers": (is_headers,),
    "properties": (pa.types.is_struct,),
    "delivery_mode": (pa.types.is_integer,),
    "priority": (pa.types.is_integer,),
    "timestamp": (pa.types.is_timestamp,),
    **dict.fromkeys(
        (
            *("content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type"),
            *("user_id", "app_id"),
        ),
        TEXT,
    ),
}


def ddl_of(options: ReadOptions) -> str:
    """Return the schema of a read in Spark's syntax; raise SchemaError."""
    known, parsed = (kafka_columns.COLUMNS, kafka_columns.PARSED) if options.is_kafka else (COLUMNS, PARSED)
    columns = [f"{name} {known[name]}" for name in wanted(options)]
    if options.decoding.format != "none":
        columns.append(f"{parsed} STRUCT<{fields_of(options.decoding)}>")
    return ", ".join(columns)


def fields_of(decoding: Decoding) -> str:
    if decoding.format == "avro":
        return avro_fields(decoding.schema)
    if decoding.format == "protobuf":
        return protobuf_fields(decoding.descriptors, decoding.message)
    return decoding.schema


def wanted(options: ReadOptions) -> tuple[str, ...]:
    known = kafka_columns.COLUMNS if options.is_kafka else COLUMNS
    unknown = [name for name in options.columns if name not in known]
    if unknown:
        raise SchemaError(f"there is no column '{unknown[0]}'; valid are: {', '.join(known)}")
    if options.columns:
        return options.columns
    if options.is_kafka:
        return tuple(name for name in known if options.with_headers or name not in WITH_HEADERS)
    if options.decoding.format != "none":
        return WITH_PARSED + (WITH_HEADERS if options.with_headers else ())
    return tuple(name for name in COLUMNS if options.with_headers or name not in WITH_HEADERS)


def needed(schema: Sequence[str], options: ReadOptions) -> tuple[str, ...]:
    """Return the columns that the broker must send: the requested ones, and those needed to decode."""
    names = [name for name in schema if name != PARSED or options.decoding.format == "none"]
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise SchemaError(f"there is no column '{unknown[0]}' in a stream; valid are: {', '.join(COLUMNS)}")
    if options.decoding.format != "none":
        names.append("body")
        # A dead letter keeps its key.
        names += ["key"] if options.decoding.dead_letter_stream else []
    # The offset says where an interrupted read goes on.
    return tuple(dict.fromkeys([*names, "offset"]))


def parsed_name(options: ReadOptions) -> str:
    """Return the name of the decoded column in a read's schema."""
    return kafka_columns.PARSED if options.is_kafka else PARSED


def own_columns(schema: pa.Schema, options: ReadOptions) -> pa.Schema:
    """Return the schema of a read in the stream's own columns, which the broker sends; raise SchemaError."""
    if not options.is_kafka:
        return schema
    own = kafka_columns.own_schema(schema)
    if PARSED in own.names and options.decoding.format == "none":
        raise SchemaError("column 'parsed' needs the option 'parsed'")
    return own


def shown(
    batch: pa.RecordBatch, schema: pa.Schema, options: ReadOptions, stream: str, partition: str
) -> pa.RecordBatch:
    """Return rows of a stream's partition in own columns in the schema that Spark expects."""
    if options.is_kafka:
        batch = kafka_columns.kafka_rows(batch, schema, stream, partition)
    return conformed(batch, schema)


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of `schema` in its order and types; raise SchemaError."""
    columns = []
    for field in schema:
        column = batch[field.name]
        try:
            columns.append(column if column.type.equals(field.type) else column.cast(field.type))
        except pa.ArrowNotImplementedError as error:
            raise SchemaError(f"column '{field.name}' is {column.type} and cannot be read as {field.type}") from error
        except pa.ArrowInvalid as error:
            raise SchemaError(
                f"column '{field.name}' has a value that cannot be read as {field.type}: {error}; read it as "
                f"{column.type}, and cast it in the query"
            ) from error
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def publishable(batches: Iterator[pa.RecordBatch], options: WriteOptions) -> Iterator[pa.RecordBatch]:
    """Return the rows of a task in own columns."""
    return kafka_columns.own_batches(batches) if options.is_kafka else batches


def check_published(schema: pa.Schema, options: WriteOptions) -> None:
    """Raise SchemaError when rows with this schema cannot be published."""
    published_schema(kafka_columns.own_published(schema) if options.is_kafka else schema)
    if options.stream and "routing_key" in schema.names:
        # A stream without partitions is the queue of its name: another routing key would be another queue.
        raise SchemaError(
            "column 'routing_key' belongs to 'exchange': it would take rows past the stream; drop it. Rows go to a "
            "stream's partitions by their column 'key'"
        )


def published_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema that is published for rows with `schema`; raise SchemaError for a column that cannot be."""
    if "body" not in schema.names and "value" in schema.names:
        raise SchemaError("there is no column 'body'; rename 'value', or set schema=kafka for Kafka's columns")
    refuse_repeated(schema)
    for field in schema:
        kinds = PUBLISHED.get(field.name)
        if kinds is None:
            raise SchemaError(
                f"column '{field.name}' cannot be published; drop it or make it part of 'body'. "
                f"There are: {', '.join(PUBLISHED)}"
            )
        if not is_any(field.type, kinds):
            raise SchemaError(f"column '{field.name}' is {field.type}; {advice(field.name)}")
    if "body" not in schema.names:
        raise SchemaError("there is no column 'body'; to_json(struct(*)) makes one of all columns")
    return pa.schema([field.with_type(sent_type(field.name, field.type)) for field in schema])


def refuse_repeated(schema: pa.Schema) -> None:
    """Raise SchemaError when a name comes twice, as after a join: Spark lets such rows be written."""
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise SchemaError(f"there are {schema.names.count(name)} columns '{name}'; select one of them")


def sent_type(name: str, kind: pa.DataType) -> pa.DataType:
    """Return the type in which a column is sent.

    A text of Spark may have any bytes (`CAST(body AS STRING)` does not look at them), and Arrow's may not. So bodies
    and keys are sent as the bytes that they are, without a copy.
    """
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if name in ("body", "key") and is_any(kind, TEXT):
        return pa.large_binary() if pa.types.is_large_string(kind) else pa.binary()
    return kind


def advice(name: str) -> str:
    if name == "headers":
        return f"it must be {HEADERS}, or a map from STRING to STRING or BINARY"
    if name == "properties":
        return "it must be a struct, as it is read"
    return "cast it to STRING" if name not in {"delivery_mode", "priority", "timestamp"} else "see the table of columns"
