"""Decoder for bodies that are one Protobuf message each, by the output of `protoc --descriptor_set_out`.

Types map as in Spark's own `from_protobuf`, except that unsigned numbers keep their values in wider types and the
well-known wrappers become what they wrap. A field that is not set is null where the message can tell, else its default.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from penstock.spark.bodies import BodyError, Decode, quoted
from penstock.spark.errors import SchemaError

__all__ = ["protobuf_decoder", "protobuf_fields"]

Convert: TypeAlias = Callable[[Any], Any]
MICROSECONDS = 1_000_000


class Column(NamedTuple):
    """Spark's type, and a function that turns a Protobuf value into an Arrow value."""

    ddl: str
    convert: Convert


def same(value: Any) -> Any:
    return value


def microseconds(value: Any) -> int:
    """Return a Timestamp or Duration in microseconds, truncated."""
    return int(value.seconds * MICROSECONDS + value.nanos // 1_000)


SCALARS = {
    FieldDescriptor.TYPE_DOUBLE: Column("DOUBLE", same),
    FieldDescriptor.TYPE_FLOAT: Column("FLOAT", same),
    FieldDescriptor.TYPE_INT64: Column("BIGINT", same),
    FieldDescriptor.TYPE_SINT64: Column("BIGINT", same),
    FieldDescriptor.TYPE_SFIXED64: Column("BIGINT", same),
    FieldDescriptor.TYPE_UINT64: Column("DECIMAL(20, 0)", Decimal),
    FieldDescriptor.TYPE_FIXED64: Column("DECIMAL(20, 0)", Decimal),
    FieldDescriptor.TYPE_INT32: Column("INT", same),
    FieldDescriptor.TYPE_SINT32: Column("INT", same),
    FieldDescriptor.TYPE_SFIXED32: Column("INT", same),
    FieldDescriptor.TYPE_UINT32: Column("BIGINT", same),
    FieldDescriptor.TYPE_FIXED32: Column("BIGINT", same),
    FieldDescriptor.TYPE_BOOL: Column("BOOLEAN", same),
    FieldDescriptor.TYPE_STRING: Column("STRING", same),
    FieldDescriptor.TYPE_BYTES: Column("BINARY", same),
}
KNOWN = {
    "google.protobuf.Timestamp": Column("TIMESTAMP", microseconds),
    "google.protobuf.Duration": Column("INTERVAL DAY TO SECOND", microseconds),
}
WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}


def protobuf_fields(descriptors: bytes, message: str) -> str:
    """Return the fields of a message in Spark's syntax; raise SchemaError."""
    return fields_of(described(descriptors, message), ())[0]


def protobuf_decoder(descriptors: bytes, message: str) -> Decode:
    """Return a decoder, which raises BodyError; raise SchemaError."""
    descriptor = described(descriptors, message)
    make: Callable[[], Any] = message_factory.GetMessageClass(descriptor)
    _, convert = fields_of(descriptor, ())

    def decode(body: bytes) -> dict[str, Any]:
        found = make()
        try:
            found.ParseFromString(body)
        except DecodeError as error:
            raise BodyError(f"the body is not a message '{message}': {error}") from error
        if not found.IsInitialized():
            raise BodyError(
                f"the body lacks required fields of '{message}': {', '.join(found.FindInitializationErrors())}"
            )
        value: dict[str, Any] = convert(found)
        return value

    return decode


def described(descriptors: bytes, message: str) -> Descriptor:
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
    except DecodeError as error:
        raise SchemaError(
            "parsedDescriptor is not a descriptor set; write one with protoc --descriptor_set_out"
        ) from error
    pool = DescriptorPool()
    try:
        for file in files:
            pool.Add(file)
        return pool.FindMessageTypeByName(message)
    except TypeError as error:
        raise SchemaError(f"parsedDescriptor is not complete; create it with --include_imports: {error}") from error
    except KeyError as error:
        there = sorted(f"{file.package}.{each.name}".lstrip(".") for file in files for each in file.message_type)
        raise SchemaError(
            f"parsedDescriptor has no message '{message}', or lacks imports (--include_imports); "
            f"valid are: {', '.join(there)}"
        ) from error


def fields_of(message: Descriptor, holders: tuple[str, ...]) -> tuple[str, Convert]:
    """Return all fields of a message with their types, and a function that turns a message into a dictionary."""
    if message.full_name in holders:
        raise SchemaError(f"Protobuf message '{message.full_name}' is recursive; Spark does not support that")
    if not message.fields:
        raise SchemaError(f"Protobuf message '{message.full_name}' has no fields, so it has no columns")
    inside = (*holders, message.full_name)
    columns = {field: column_of(field, inside) for field in message.fields}

    def convert(value: Any) -> dict[str, Any]:
        return {
            field.name: None
            if field.has_presence and not value.HasField(field.name)
            else column.convert(getattr(value, field.name))
            for field, column in columns.items()
        }

    return ", ".join(f"{quoted(field.name)}: {column.ddl}" for field, column in columns.items()), convert


def column_of(field: FieldDescriptor, holders: tuple[str, ...]) -> Column:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, value = (one_of_field(entry.fields_by_name[name], holders) for name in ("key", "value"))
        return Column(
            f"MAP<{key.ddl}, {value.ddl}>",
            lambda pairs: [(key.convert(name), value.convert(each)) for name, each in pairs.items()],
        )
    one = one_of_field(field, holders)
    if field.is_repeated:
        return Column(f"ARRAY<{one.ddl}>", lambda values: [one.convert(each) for each in values])
    return one


def one_of_field(field: FieldDescriptor, holders: tuple[str, ...]) -> Column:
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        # A number that these descriptors do not know stays a number.
        return Column("STRING", lambda number: names.get(number, str(number)))
    if field.message_type is None:
        return SCALARS[field.type]
    name = field.message_type.full_name
    if name in KNOWN:
        return KNOWN[name]
    if name in WRAPPERS:
        inner = SCALARS[field.message_type.fields_by_name["value"].type]
        return Column(inner.ddl, lambda wrapper: inner.convert(wrapper.value))
    ddl, convert = fields_of(field.message_type, holders)
    return Column(f"STRUCT<{ddl}>", convert)
