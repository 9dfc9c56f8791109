"""Columns of `schema=kafka`: those of Spark's Kafka source and sink, with their names and types.

They are made of a stream's own columns after everything else is done to a batch, and become own columns before anything
else on a write. So nothing but this module knows Kafka's names. Pure: it knows Arrow, not Spark.
"""

import re
from collections.abc import Iterable, Iterator

import pyarrow as pa

from penstock.spark.errors import SchemaError

__all__ = ["COLUMNS", "PARSED", "kafka_rows", "own_batches", "own_published", "own_schema", "partition_number"]

HEADERS = "headers"
COLUMNS = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    HEADERS: "ARRAY<STRUCT<key STRING, value BINARY>>",
}
# The decoded body, which is `value` among a stream's own columns.
PARSED, OWN_PARSED = "parsed", "value"
OWN = {"key": "key", "value": "body", "offset": "offset", "timestamp": "timestamp", HEADERS: HEADERS}
# The broker sets the time when it stores a message.
LOG_APPEND_TIME = 1

SINK = ("key", "value", HEADERS)
# Columns of a read that Kafka's sink ignores too, so that rows can be copied as they are. The option names the stream.
IGNORED = ("topic", "offset", "timestamp", "timestampType")
NUMBER = re.compile(r"-([0-9]{1,9})")


def partition_number(stream: str, partition: str) -> int:
    """Return the number of a partition in its stream; 0 for a stream without partitions."""
    number = NUMBER.fullmatch(partition.removeprefix(stream)) if partition.startswith(stream) else None
    return 0 if number is None else int(number[1])


def own_schema(schema: pa.Schema) -> pa.Schema:
    """Return the stream's own columns that a read needs for Kafka's; raise SchemaError."""
    fields = []
    for field in schema:
        if field.name == PARSED:
            fields.append(field.with_name(OWN_PARSED))
        elif field.name in OWN:
            fields.append(field.with_name(OWN[field.name]))
        elif field.name not in COLUMNS:
            raise SchemaError(f"there is no column '{field.name}' with schema=kafka; valid are: {', '.join(COLUMNS)}")
    return pa.schema(fields)


def kafka_rows(batch: pa.RecordBatch, schema: pa.Schema, stream: str, partition: str) -> pa.RecordBatch:
    """Return the columns of `schema`, in its order, for rows of a partition in its own columns."""
    constants = {
        "topic": pa.scalar(stream),
        "partition": pa.scalar(partition_number(stream, partition), pa.int32()),
        "timestampType": pa.scalar(LOG_APPEND_TIME, pa.int32()),
    }
    columns = []
    for name in schema.names:
        if name in constants:
            columns.append(pa.repeat(constants[name], batch.num_rows))
        else:
            columns.append(batch[OWN_PARSED if name == PARSED else OWN[name]])
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def own_published(schema: pa.Schema) -> pa.Schema:
    """Return the own columns that are published for rows in Kafka's columns; raise SchemaError."""
    for name in schema.names:
        if name in SINK and schema.names.count(name) > 1:
            raise SchemaError(f"there are {schema.names.count(name)} columns '{name}'; select one of them")
        if name == "partition":
            raise SchemaError(
                "column 'partition' cannot choose a partition: the key does, as for all publishers; drop the column"
            )
        if name not in SINK and name not in IGNORED:
            raise SchemaError(
                f"column '{name}' is not one of Kafka's sink; drop it, or leave 'schema' out to publish a stream's own "
                f"columns. There are: {', '.join(SINK)}"
            )
    if "value" not in schema.names:
        raise SchemaError("there is no column 'value'; to_json(struct(*)) makes one of all columns")
    return pa.schema([field.with_name(OWN[field.name]) for field in schema if field.name in SINK])


def own_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows in own columns. A row without a value becomes an empty message: Kafka's tombstone."""
    for batch in batches:
        schema = own_published(batch.schema)
        kept = batch.select([name for name in batch.schema.names if name in SINK])
        values = kept["value"].fill_null("" if is_text(kept["value"].type) else b"")
        columns = [values if name == "value" else kept[name] for name in kept.schema.names]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
