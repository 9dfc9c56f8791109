"""Checks of the schema that a read is to have, in the driver: Spark hands on one of the user's (`schema(...)`) unseen.

Schemas that it refuses would fail in each task, or be wrong without an error. Pure: it knows Arrow, not Spark.
"""

from collections.abc import Mapping

import pyarrow as pa

from penstock.spark.columns import PROPERTIES, needed, own_columns, parsed_name
from penstock.spark.errors import SchemaError
from penstock.spark.options import ReadOptions

__all__ = ["check_shown"]

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
# Columns as the broker sends them; those that it may send without a value are in MAY_BE_NULL.
SENT: Mapping[str, pa.DataType] = {
    "partition": pa.string(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "key": pa.binary(),
    "exchange": pa.string(),
    "routing_key": pa.string(),
    "body": pa.binary(),
    "headers": HEADERS,
}
SENT_TO_KAFKA = {
    **SENT,
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestampType": pa.int32(),
}
MAY_BE_NULL = ("key", "properties", "headers")
# Names of the fields in columns of structs. Arrow would read others as null.
FIELDS = {
    "headers": {"key", "value"},
    "properties": {each.split()[0] for each in PROPERTIES.split(", ")},
}


def check_shown(schema: pa.Schema, options: ReadOptions) -> None:
    """Raise SchemaError for a column that a read has not, has in no such type, or has with nulls."""
    parsed = parsed_name(options)
    needed(own_columns(schema, options).names, options)
    sent = SENT_TO_KAFKA if options.is_kafka else SENT
    for field in schema:
        if not field.nullable and field.name in (*MAY_BE_NULL, parsed):
            raise SchemaError(f"column '{field.name}' must not be NOT NULL: some rows have none")
        if field.name in sent and not is_castable(sent[field.name], field.type):
            raise SchemaError(f"column '{field.name}' is {sent[field.name]} and cannot be read as {field.type}")
        check_fields(field)
    if options.decoding.format != "none" and parsed not in schema.names:
        raise SchemaError(
            f"'parsed' decodes bodies to the column '{parsed}', which the schema of this read lacks; add it, or leave "
            "'parsed' out"
        )


def check_fields(field: pa.Field) -> None:
    known, kind = FIELDS.get(field.name), field.type
    if known is None:
        return
    kind = kind.value_type if pa.types.is_list(kind) else kind
    unknown = [each.name for each in kind if each.name not in known] if pa.types.is_struct(kind) else [str(kind)]
    if unknown:
        raise SchemaError(f"column '{field.name}' has no '{unknown[0]}'; it has structs of: {', '.join(sorted(known))}")


def is_castable(sent: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether Arrow casts one type to the other. It says so only by refusing to cast an empty array."""
    try:
        pa.array([], sent).cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True
