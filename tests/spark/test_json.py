"""JSON bodies beside Spark's own `from_json`: the same good rows with the same values, and the same bad ones."""

import json
import random
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import penstock
from support import Broker

pytestmark = [pytest.mark.slow]

FIELDS = {
    "flag": "BOOLEAN",
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "count": "INT",
    "id": "BIGINT",
    "ratio": "FLOAT",
    "score": "DOUBLE",
    "price": "DECIMAL(6, 2)",
    "total": "DECIMAL(38, 3)",
    "name": "STRING",
    "data": "BINARY",
    "day": "DATE",
    "at": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "items": "ARRAY<INT>",
    "by_name": "MAP<STRING, DOUBLE>",
    "place": "STRUCT<x: INT, tags: ARRAY<STRING>>",
}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in FIELDS.items())
# Values as they are written. Each is tried in each field: most fit only some of them.
VALUES = [
    *("null", "true", "false", "0", "-1", "127", "128", "-32768", "2147483648", "9223372036854775808", "-0"),
    *("1.5", "-2.25", "1e3", "1e400", "1234.565", "12345.67", "0.005", "123456789012345678901234567890.1235", "NaN"),
    *('""', '"text"', '"1.5"', '"NaN"', '"+INF"', '"-Infinity"', '"YWJj"', '"2026-01-31"', '"2024-02-30"'),
    *('"2026-01-31T12:30:00.123456Z"', '"2026-01-31T12:30:00+05:30"', '"\\u00e9\\n\\ud83d\\ude00"'),
    *("[]", "[1, null, 3]", "[1.5]", '["a"]', "{}", '{"a": 1.5, "b": null}', '{"x": 1, "tags": ["t"], "more": 1}'),
    *('{"x": 1, "x": 2}', '{"x": "1"}', "[[1]]"),
]
# Where Spark reads more than is documented here, or shows a text differently.
UNLIKE = {
    *(("tiny", "128"), ("day", '"2026-01-31T12:30:00.123456Z"'), ("day", '"2026-01-31T12:30:00+05:30"')),
    *(("at", '"2026-01-31"'), ("name", "NaN"), ("name", "1e3"), ("name", "1e400"), ("name", "-0")),
    # As whole numbers they have no sign in Spark.
    *(("ratio", "-0"), ("score", "-0")),
    *(("name", "123456789012345678901234567890.1235"), ("name", '{"x": 1, "x": 2}')),
    *((name, '""') for name in FIELDS),
}
WHOLE = [
    *(
        "{}",
        '{"id": 1}',
        '{"id": 1, "other": {"deep": [[{}]]}}',
        '{"id": 1, "id": 2}',
        ' \n{ "id" : 3 }\t',
        "",
        "{",
        "x",
    ),
    *('{"id": 1', '{"id": 1,}', '{"id" 1}', '{"name": "a\tb"}', '{"name": "\\x"}', '{"id": 01}', '{"id": tru}'),
]


def bodies() -> list[str]:
    """Return every value in every field, some whole bodies, and objects of several fields with drawn values."""
    draw = random.Random(7)
    found = [f'{{"{name}": {value}}}' for name in FIELDS for value in VALUES if (name, value) not in UNLIKE]
    for _ in range(200):
        names = draw.sample(list(FIELDS), draw.randint(1, 5))
        drawn = [(name, draw.choice(VALUES)) for name in names]
        found.append(
            "{" + ", ".join(f'"{name}": {value}' for name, value in drawn if (name, value) not in UNLIKE) + "}"
        )
    return found + WHOLE


@pytest.fixture
def stream(connection: penstock.Connection) -> penstock.Stream:
    name = f"json-{uuid4().hex[:8]}"
    connection.declare_stream(name)
    return connection.stream(name)


def reading(spark: SparkSession, broker: Broker, stream: penstock.Stream, fields: str, **options: str) -> DataFrame:
    named = {"uri": broker.uri(), "stream": stream.name, "parsed": "json", "parsedSchema": fields, **options}
    return spark.read.format("penstock").options(**named).load()


def shown(row: Any) -> str:
    """Return a value in a form that compares: NaN is no equal to itself."""
    return repr(row)


def test_good_rows_are_those_of_from_json_and_so_are_the_bad_ones(
    spark: SparkSession, broker: Broker, stream: penstock.Stream
) -> None:
    texts = bodies()
    stream.publish_many([text.encode() for text in texts])

    rows = reading(spark, broker, stream, f"{SCHEMA}, _corrupt_record STRING", columns="offset,body")
    compared = rows.selectExpr(
        "CAST(body AS STRING) AS text",
        "value AS ours",
        f"from_json(CAST(body AS STRING), '{SCHEMA}, _corrupt_record STRING') AS theirs",
    ).collect()

    assert [row.text for row in compared] == texts
    unlike = []
    for text, ours, theirs in compared:
        is_bad = theirs is not None and theirs._corrupt_record is not None
        if is_bad:
            good = ours is not None and ours.asDict() == {**dict.fromkeys(FIELDS), "_corrupt_record": text}
        else:
            good = shown(ours) == shown(theirs)
        if not good:
            unlike.append(f"{text}: {ours}, not {theirs}")
    assert not unlike, "\n".join(unlike)
    assert 100 < sum(row.ours is not None and row.ours._corrupt_record is None for row in compared) < len(texts) - 100


def test_a_schema_that_contradicts_the_options_or_that_json_lacks_is_refused_before_a_task_runs(
    spark: SparkSession, broker: Broker, stream: penstock.Stream, connection: penstock.Connection
) -> None:
    connection.declare_stream("bad-json")
    corrupt = "id INT, _corrupt_record STRING"
    for schema, options, reason in (
        (corrupt, {"deadLetterStream": "bad-json"}, "keeps bad records, and 'deadLetterStream' leaves them out"),
        (corrupt, {"dropBadRecords": "true"}, "keeps bad records, and 'dropBadRecords' leaves them out"),
        ("id INT", {"columnNameOfCorruptRecord": "bad"}, "add 'bad STRING' to it"),
        ("id INT, _corrupt_record INT", {}, "it must be a STRING"),
        ("id INT NOT NULL", {}, "must not be NOT NULL"),
        ("gap INTERVAL DAY TO SECOND", {}, "JSON is not decoded to"),
        ("places MAP<INT, STRING>", {}, "JSON is not decoded to"),
    ):
        with pytest.raises(PySparkException, match=reason):
            reading(spark, broker, stream, schema, **options).collect()


def test_a_column_of_another_name_gets_the_text_of_bad_records(
    spark: SparkSession, broker: Broker, stream: penstock.Stream
) -> None:
    texts = ['{"id": 1}', "x", '{"id": "x"}']
    stream.publish_many([text.encode() for text in texts])

    rows = reading(spark, broker, stream, "bad STRING, id INT", columnNameOfCorruptRecord="bad").select("value.*")

    assert [tuple(row) for row in rows.collect()] == [(None, 1), ("x", None), ('{"id": "x"}', None)]
    assert json.loads(texts[0]) == {"id": 1}


def test_json_is_decoded_beside_the_columns_of_kafka(
    spark: SparkSession, broker: Broker, stream: penstock.Stream
) -> None:
    texts = ['{"id": 1}', "x"]
    stream.publish_many([text.encode() for text in texts])

    rows = reading(spark, broker, stream, "id INT, _corrupt_record STRING", schema="kafka")

    found = rows.selectExpr("CAST(value AS STRING) AS body", "parsed.*").collect()
    assert [tuple(row) for row in found] == [(texts[0], 1, None), ("x", None, "x")]
    with pytest.raises(PySparkException, match="must not be NOT NULL"):
        reading(spark, broker, stream, "id INT NOT NULL", schema="kafka").collect()
