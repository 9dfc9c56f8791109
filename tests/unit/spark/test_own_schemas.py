"""Schemas that a user gives a read: refused in the driver, where they would fail in each task or be wrong silently."""

import pyarrow as pa
import pytest

from penstock.spark.errors import SchemaError
from penstock.spark.options import parse_read_options
from penstock.spark.own_schemas import check_shown

JSON = {"parsed": "json", "parsedSchema": "id INT"}
VALUE = pa.struct([("id", pa.int32())])
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))


def check(schema: pa.Schema, options: dict[str, str]) -> None:
    check_shown(schema, parse_read_options({"stream": "events", **options}))


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        (pa.schema([("offset", pa.int32()), ("key", pa.string()), ("timestamp", pa.timestamp("us"))]), {}),
        (
            pa.schema([pa.field("offset", pa.int64(), nullable=False), pa.field("body", pa.binary(), nullable=False)]),
            {},
        ),
        (pa.schema([("headers", HEADERS), ("properties", pa.struct([("type", pa.string())]))]), {}),
        (pa.schema([("value", VALUE)]), JSON),
        (
            pa.schema([("value", pa.string()), ("timestampType", pa.int64()), ("partition", pa.int64())]),
            {"schema": "kafka"},
        ),
        (pa.schema([("parsed", VALUE)]), {**JSON, "schema": "kafka"}),
    ],
)
def test_columns_may_be_some_and_have_types_that_values_can_become(schema: pa.Schema, options: dict[str, str]) -> None:
    check(schema, options)


@pytest.mark.parametrize(
    ("field", "options", "text"),
    [
        (pa.field("Body", pa.binary()), {}, "there is no column 'Body' in a stream"),
        (pa.field("topic", pa.string()), {}, "there is no column 'topic' in a stream"),
        (pa.field("body", pa.binary()), {"schema": "kafka"}, "there is no column 'body' with schema=kafka"),
        (pa.field("offset", VALUE), {}, "column 'offset' is int64 and cannot be read as"),
        (pa.field("key", pa.binary(), nullable=False), {}, "column 'key' must not be NOT NULL"),
        (pa.field("key", pa.binary(), nullable=False), {"schema": "kafka"}, "column 'key' must not be NOT NULL"),
        (pa.field("value", VALUE, nullable=False), JSON, "column 'value' must not be NOT NULL"),
        (pa.field("properties", pa.struct([("kind", pa.string())])), {}, "column 'properties' has no 'kind'"),
        (pa.field("headers", pa.list_(pa.struct([("name", pa.string())]))), {}, "column 'headers' has no 'name'"),
        (pa.field("properties", pa.string()), {}, "column 'properties' has no 'string'"),
        (pa.field("offset", pa.int64()), JSON, "to the column 'value', which the schema of this read lacks"),
        (pa.field("value", pa.binary()), {**JSON, "schema": "kafka"}, "to the column 'parsed', which the schema"),
    ],
)
def test_what_no_task_could_read_rightly_is_refused(field: pa.Field, options: dict[str, str], text: str) -> None:
    """`NOT NULL` had Spark take rows without a key for rows with one; unknown fields were null in all rows."""
    with pytest.raises(SchemaError, match=text):
        check(pa.schema([field]), options)
