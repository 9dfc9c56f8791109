"""Plans of real queries: those with a shuffle are told from those that keep the order of their rows."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.pipeline.document import Pipeline, read_pipeline
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.plans import keeps_order, plan_of
from penstock.pipeline.running import started
from support import Broker


@pytest.fixture
def source(spark: SparkSession) -> DataFrame:
    """Return a stream, and make a small table in memory that can be joined with it."""
    rows = spark.readStream.format("rate").load()
    rows.createOrReplaceTempView("source")
    spark.createDataFrame([(1, "a")], "value BIGINT, name STRING").createOrReplaceTempView("names")
    return rows


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT value AS body FROM source DISTRIBUTE BY value",
        "SELECT value, count(*) FROM source GROUP BY value",
        "SELECT DISTINCT value FROM source",
        "SELECT /*+ REPARTITION(3) */ value FROM source",
        "SELECT value, name FROM source JOIN names USING (value)",
        "SELECT value FROM source WHERE value IN (SELECT value FROM names)",
        "WITH found AS (SELECT DISTINCT value FROM source) SELECT value FROM found",
    ],
)
def test_a_query_that_may_shuffle_its_rows_does_not_keep_their_order(
    spark: SparkSession, source: DataFrame, sql: str
) -> None:
    assert not keeps_order(plan_of(spark.sql(sql)))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT value AS body FROM source",
        "SELECT 'Aggregate' AS Aggregate, value FROM source WHERE value > 1",
        "SELECT explode(array(value, value + 1)) FROM source",
        "WITH found AS (SELECT value FROM source) SELECT value FROM found",
    ],
)
def test_a_query_that_selects_filters_and_maps_keeps_it(spark: SparkSession, source: DataFrame, sql: str) -> None:
    assert keeps_order(plan_of(spark.sql(sql)))


def test_functions_over_batches_keep_it_too(source: DataFrame) -> None:
    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches

    rows = source.withWatermark("timestamp", "1 minute").mapInArrow(same, source.schema)

    assert keeps_order(plan_of(rows))
    assert not keeps_order(plan_of(rows.dropDuplicates(["value"])))


def test_a_plan_that_is_not_understood_counts_as_a_shuffle() -> None:
    assert not keeps_order("")
    assert not keeps_order("== Physical Plan ==\nExchange\n")


@pytest.fixture
def names(connection: penstock.Connection) -> Iterator[tuple[str, str]]:
    """Return a stream with three messages and one to copy them to."""
    for name in ("planned-events", "planned-copy"):
        connection.declare_stream(name)
    connection.stream("planned-events").publish_many([b"1", b"2", b"3"])
    yield "planned-events", "planned-copy"
    for name in ("planned-events", "planned-copy"):
        connection.delete_stream(name)


def pipeline(folder: Path, broker: Broker, names: tuple[str, str], sql: str, **sink: object) -> Pipeline:
    source, copy = names
    document = {
        "name": "planned",
        "source": {"uri": broker.uri(), "stream": source, "startingOffsets": "earliest"},
        "sql": sql,
        "sinks": [{"uri": broker.uri(), "stream": copy, **sink}],
        "checkpoint": "checkpoint",
    }
    file = folder / "planned.yaml"
    file.write_text(json.dumps(document))
    return read_pipeline(file)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sql", "sink", "stages"),
    [
        ("SELECT key, body FROM source DISTRIBUTE BY body", {}, 1),
        ("SELECT key, body FROM source", {"staged": False}, 0),
    ],
)
def test_a_pipeline_stages_its_rows_unless_told_otherwise(
    spark: SparkSession,
    broker: Broker,
    connection: penstock.Connection,
    names: tuple[str, str],
    tmp_path: Path,
    sql: str,
    sink: dict[str, object],
    stages: int,
) -> None:
    before = {stage.name for stage in connection.admin.list_stages()}
    query = started(spark, pipeline(tmp_path, broker, names, sql, **sink), 0)
    try:
        assert query.awaitTermination(100)
    finally:
        query.stop()

    copied = sorted(message.body for message in connection.stream(names[1]).read("first", until="next"))
    assert copied == [b"1", b"2", b"3"]
    left = {stage.name for stage in connection.admin.list_stages()} - before
    assert len(left) == stages
    for stage in left:
        connection.admin.delete_stage(stage)


@pytest.mark.slow
def test_a_pipeline_with_a_shuffle_below_a_sink_that_is_not_staged_is_refused(
    spark: SparkSession, broker: Broker, names: tuple[str, str], tmp_path: Path
) -> None:
    refused = pipeline(tmp_path, broker, names, "SELECT key, body FROM source DISTRIBUTE BY key", staged=False)

    with pytest.raises(PipelineError, match=r"sinks\[0\]: 'staged: false' is for transformations that only select"):
        started(spark, refused, 0)
