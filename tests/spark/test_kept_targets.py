"""A pipeline's sinks and their checkpoints: one that got another number does not go on at the place of another."""

import json
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.pipeline.document import Sink, read_pipeline
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.kept_targets import check_kept_target, target_of
from penstock.pipeline.running import started
from support import Broker

TABLE = {"url": "jdbc:x://h/?password=s3cret", "dbtable": "rows"}


@pytest.mark.slow
def test_a_sink_that_is_put_before_others_is_refused_and_no_row_is_stored_again(
    spark: SparkSession, broker: Broker, connection: penstock.Connection, tmp_path: Path
) -> None:
    """Sink 1 began anew and stored all rows again, and sink 0 began where another had ended."""
    names = {kind: f"{kind}-{uuid4().hex[:8]}" for kind in ("source", "first", "new")}
    for name in names.values():
        connection.declare_stream(name)
    connection.stream(names["source"]).publish_many([b"1", b"2"])
    source = {"uri": broker.uri(), "stream": names["source"], "startingOffsets": "earliest"}
    document = {"name": "p", "source": source, "sql": "SELECT body FROM source", "checkpoint": "checkpoint"}

    def run(*sinks: str) -> None:
        targets = [{"uri": broker.uri(), "stream": names[sink], "staged": False} for sink in sinks]
        (tmp_path / "p.yaml").write_text(json.dumps({**document, "sinks": targets}))
        for number in range(len(sinks)):
            query = started(spark, read_pipeline(tmp_path / "p.yaml"), number)
            assert query.awaitTermination(100)

    run("first")
    with pytest.raises(PipelineError, match=r"sinks\[0\] is stream new-\w+, and its checkpoint has .* stream first-"):
        run("new", "first")
    run("first", "new")

    for sink in ("first", "new"):
        assert [message.body for message in connection.stream(names[sink]).read("first", until="next")] == [b"1", b"2"]


@pytest.mark.slow
def test_a_parquet_folder_of_another_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Spark passed over the first batches of the new checkpoint, as it took them for those that the folder has."""
    path = tmp_path / "rows"
    sink = Sink("parquet", {"path": str(path)}, "append", "")
    check_kept_target(spark, str(tmp_path / "old"), 0, sink)
    (path / "_spark_metadata").mkdir(parents=True)

    check_kept_target(spark, str(tmp_path / "old"), 0, sink)
    with pytest.raises(PipelineError, match="has rows of another checkpoint, and Spark would leave out"):
        check_kept_target(spark, str(tmp_path / "new"), 0, sink)


def test_targets_are_named_without_secrets() -> None:
    exchange = Sink("penstock", {"exchange": "e", "routingKey": "r"}, "append", "")

    assert target_of(exchange) == "exchange e r"
    assert "s3cret" not in target_of(Sink("jdbc", TABLE, "append", ""))
    assert target_of(Sink("jdbc", TABLE, "append", "")).startswith("table rows (")
