"""The schemas that JSON bodies are decoded to, as Arrow has them.

Every column must be nullable, because a body may lack any field. `_corrupt_record`, or the column named by the option
`columnNameOfCorruptRecord`, is no field of the bodies: it has the text of a bad one.
"""

from collections.abc import Iterable

import pyarrow as pa

from penstock.spark.errors import OptionError, SchemaError
from penstock.spark.options import CORRUPT_COLUMN, Decoding

__all__ = ["check_json_kind", "corrupt_column_of", "fields_of_bodies"]

PLAIN = (
    *(pa.types.is_boolean, pa.types.is_int8, pa.types.is_int16, pa.types.is_int32, pa.types.is_int64),
    *(pa.types.is_float32, pa.types.is_float64, pa.types.is_decimal128, pa.types.is_string, pa.types.is_binary),
    pa.types.is_date32,
)


def corrupt_column_of(kind: pa.StructType, decoding: Decoding) -> str | None:
    """Return the column for the text of bad bodies, if the schema has it."""
    name = decoding.corrupt_column or CORRUPT_COLUMN
    return name if decoding.format == "json" and name in [field.name for field in kind] else None


def fields_of_bodies(kind: pa.StructType, decoding: Decoding) -> pa.StructType:
    """Return the schema without the column for the text of bad bodies."""
    corrupt = corrupt_column_of(kind, decoding)
    return pa.struct([field for field in kind if field.name != corrupt])


def check_json_kind(kind: pa.DataType, decoding: Decoding) -> None:
    """Raise SchemaError for a schema that JSON is not decoded to, OptionError for one that contradicts the options."""
    if not pa.types.is_struct(kind):
        raise SchemaError(f"the decoded column is {kind}; it must be a struct with the fields of the bodies")
    corrupt = corrupt_column_of(kind, decoding)
    if corrupt is None and decoding.corrupt_column:
        raise OptionError(
            f"'columnNameOfCorruptRecord' is '{decoding.corrupt_column}', and 'parsedSchema' has no such column; "
            f"add '{decoding.corrupt_column} STRING' to it"
        )
    if corrupt is not None:
        check_corrupt(kind, corrupt, decoding)
    check_fields(fields_of_bodies(kind, decoding), "")


def check_corrupt(kind: pa.StructType, corrupt: str, decoding: Decoding) -> None:
    field = kind.field(corrupt)
    if not pa.types.is_string(field.type) or not field.nullable:
        raise SchemaError(f"column '{corrupt}' gets the text of bad bodies; it must be a STRING that may be null")
    for name, is_given in (("deadLetterStream", decoding.dead_letter_stream), ("dropBadRecords", decoding.drops)):
        if is_given:
            raise OptionError(
                f"'parsedSchema' has the column '{corrupt}', which keeps bad records, and '{name}' leaves them out; "
                "remove one of them"
            )


def check_fields(fields: Iterable[pa.Field], place: str) -> None:
    names = set()
    for field in fields:
        if field.name in names:
            raise SchemaError(f"'parsedSchema' has the column '{place}{field.name}' twice")
        names.add(field.name)
        check_field(field, f"{place}{field.name}")


def check_field(field: pa.Field, place: str) -> None:
    if not field.nullable:
        raise SchemaError(f"column '{place}' must not be NOT NULL: a body may lack it, and its value is then null")
    kind = field.type
    if any(is_kind(kind) for is_kind in PLAIN) or (pa.types.is_timestamp(kind) and kind.unit == "us"):
        return
    if pa.types.is_struct(kind):
        check_fields(kind, f"{place}.")
    elif pa.types.is_list(kind):
        check_field(kind.value_field, f"{place}[]")
    elif pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        check_field(kind.item_field, f"{place}[]")
    else:
        raise SchemaError(f"column '{place}' is {kind}, which JSON is not decoded to; read it as STRING and cast it")
