"""Decoder for bodies that are one Avro datum each, plain binary without a header or file around it.

Types map as in Spark's own `from_avro`, except unions of several types, which are refused when the read is planned. The
schema bounds a body: every item takes at least a byte, so a few bytes cannot become many rows.
"""

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any, TypeAlias

from penstock.spark.bodies import BodyError, Decode, quoted
from penstock.spark.errors import SchemaError

__all__ = ["avro_decoder", "avro_fields"]

Schema: TypeAlias = Any
Shape: TypeAlias = Callable[[Any], Any]

PLAIN = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
    "enum": "STRING",
    "fixed": "BINARY",
}
LOGICAL = {
    "date": "DATE",
    "timestamp-millis": "TIMESTAMP",
    "timestamp-micros": "TIMESTAMP",
    "local-timestamp-millis": "TIMESTAMP_NTZ",
    "local-timestamp-micros": "TIMESTAMP_NTZ",
}
# Unions that Spark treats as one type.
WIDENED = {frozenset({"int", "long"}): "BIGINT", frozenset({"float", "double"}): "DOUBLE"}
PRECISION_MAX = 38
# Exceptions that fastavro raises for bytes that do not match the schema.
BAD = (EOFError, IndexError, KeyError, TypeError, ValueError, ArithmeticError, MemoryError)


def avro_fields(text: str) -> str:
    """Return the fields of a record's schema in Spark's syntax; raise SchemaError."""
    schema = parsed(text)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise SchemaError("parsedSchema: an Avro schema must be a record; its fields become columns")
    return ", ".join(fields(schema, ":"))


def avro_decoder(text: str) -> Decode:
    """Return a decoder, which raises BodyError; raise SchemaError."""
    from fastavro import schemaless_reader

    schema = parsed(text)
    shape = shape_of(schema)

    def decode(body: bytes) -> dict[str, Any]:
        stream = BytesIO(body)
        try:
            value = schemaless_reader(stream, schema, None)
        except BAD as error:
            raise BodyError(f"the body is not of this Avro schema: {error or type(error).__name__}") from error
        if stream.tell() != len(body):
            raise BodyError(f"the body has {len(body) - stream.tell()} extra bytes after the Avro record")
        found: dict[str, Any] = shape(value)
        return found

    return decode


def parsed(text: str) -> Schema:
    """Return the schema with named types resolved."""
    try:
        from fastavro.schema import SchemaParseException, UnknownType, parse_schema
    except ModuleNotFoundError as error:
        raise SchemaError("parsed=avro needs the package fastavro, which is in penstock[spark]") from error
    try:
        return parse_schema(json.loads(text, object_hook=without_other_logic), expand=True)
    except (SchemaParseException, UnknownType, ValueError, TypeError, KeyError, RecursionError) as error:
        raise SchemaError(f"parsedSchema is not an Avro schema: {error or type(error).__name__}") from error


def without_other_logic(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace logical types that Spark lacks by their stored type: a time of day by a number, a UUID by a text."""
    logical = schema.get("logicalType")
    return schema if logical is None or logical in (*LOGICAL, "decimal") else without(schema, "logicalType")


def without(schema: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != name}


def fields(record: Schema, separator: str) -> list[str]:
    if not record["fields"]:
        raise SchemaError(f"Avro record '{record['name']}' has no fields, so it has no columns")
    return [f"{quoted(each['name'])}{separator} {type_of(each['type'], each['name'])}" for each in record["fields"]]


def type_of(schema: Schema, place: str) -> str:
    """Return Spark's type; `place` is the field's name, for errors."""
    if isinstance(schema, list):
        return union_of(schema, place)
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(kind, dict | list):
        return type_of(kind, place)
    detail = {} if isinstance(schema, str) else schema
    logical = detail.get("logicalType")
    if logical == "decimal":
        return decimal_of(detail, place)
    if logical is not None:
        return LOGICAL[logical]
    if kind == "array":
        return f"ARRAY<{type_of(detail['items'], place)}>"
    if kind == "map":
        return f"MAP<STRING, {type_of(detail['values'], place)}>"
    if kind == "record":
        return f"STRUCT<{', '.join(fields(detail, ':'))}>"
    if kind == "fixed" and not detail["size"]:
        raise SchemaError(f"Avro field '{place}' is fixed with size 0, so it is empty")
    if kind not in PLAIN:
        raise SchemaError(
            f"Avro field '{place}' is '{kind}': null by itself, or a recursive type; Spark does not support that"
        )
    return PLAIN[kind]


def union_of(schemas: list[Schema], place: str) -> str:
    choices = [each for each in schemas if each != "null"]
    if len(choices) == 1:
        return type_of(choices[0], place)
    kinds = frozenset(each for each in choices if isinstance(each, str))
    if len(kinds) != len(choices) or kinds not in WIDENED:
        raise SchemaError(
            f"Avro field '{place}' is a union of several types; only null with one type, int with long, and float "
            "with double become a column"
        )
    return WIDENED[kinds]


def decimal_of(schema: dict[str, Any], place: str) -> str:
    precision, scale = schema["precision"], schema.get("scale", 0)
    if precision > PRECISION_MAX:
        raise SchemaError(f"Avro field '{place}' has {precision} digits; Spark's DECIMAL has {PRECISION_MAX}")
    return f"DECIMAL({precision}, {scale})"


def shape_of(schema: Schema) -> Shape:
    """Return a function that turns fastavro's values into Arrow's: maps become pairs."""
    if isinstance(schema, list):
        choices = [each for each in schema if each != "null"]
        inner = shape_of(choices[0]) if len(choices) == 1 else same
        return inner if inner is same else lambda value: None if value is None else inner(value)
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(kind, dict | list):
        return shape_of(kind)
    if kind == "map":
        of_value = shape_of(schema["values"])
        return lambda value: [(key, of_value(each)) for key, each in value.items()]
    if kind == "array":
        of_item = shape_of(schema["items"])
        return same if of_item is same else lambda value: [of_item(each) for each in value]
    if kind == "record":
        shapes = {each["name"]: shape for each in schema["fields"] if (shape := shape_of(each["type"])) is not same}
        return same if not shapes else lambda value: value | {name: shapes[name](value[name]) for name in shapes}
    return same


def same(value: Any) -> Any:
    return value
