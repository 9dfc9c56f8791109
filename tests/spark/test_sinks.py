"""Real sinks that take a micro-batch at a time: a table of Delta Lake and one of Derby, which Spark includes."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import penstock
from support import Broker
from support.broker import penstock_command

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2_400)]


def run(document: Path, broker: Broker) -> list[int]:
    """Return the rows that each sink read."""
    environment = {**os.environ, "PENSTOCK_URI": broker.uri(), "PYTHONPATH": str(ROOT / "broker")}
    environment.pop("PYSPARK_PYTHON", None)
    command = [penstock_command(), "pipeline", "run", str(document), "--output", "json"]
    done = subprocess.run(
        command, cwd=document.parent, capture_output=True, text=True, env=environment, check=False, timeout=1_100
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    rows: list[int] = json.loads(done.stdout)["rows"]
    return rows


def take_back(checkpoint: Path) -> None:
    """Undo the commit, as if the driver had died between a batch and its commit."""
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)


def in_delta(folder: Path) -> list[int]:
    rows: list[int] = DeltaTable(folder / "ids").to_pyarrow_table()["id"].to_pylist()
    return sorted(rows)


def test_delta_has_every_row_once_and_jdbc_has_them(
    broker: Broker, connection: penstock.Connection, tmp_path: Path, spark: SparkSession
) -> None:
    connection.declare_stream("for-tables")
    stream = connection.stream("for-tables")
    stream.publish_many([b'{"id": %d}' % number for number in range(30)])
    url = f"jdbc:derby:{tmp_path / 'database'}"
    document = tmp_path / "tables.yaml"
    sinks = [
        {"format": "delta", "path": "ids"},
        {"format": "jdbc", "url": f"{url};create=true", "dbtable": "ids", "select": "SELECT id FROM result"},
    ]
    source = {"stream": "for-tables", "startingOffsets": "earliest", "parsed": "json", "parsedSchema": "id BIGINT"}
    pipeline = {"name": "tables", "source": {**source, "maxOffsetsPerTrigger": 20}, "sinks": sinks}
    sql = "SELECT value.id, timestamp AS at FROM source"
    document.write_text(yaml.safe_dump({**pipeline, "sql": sql, "checkpoint": "checkpoint"}))

    assert run(document, broker) == [30, 30]
    take_back(tmp_path / "checkpoint" / "0")
    stream.publish(b'{"id": 30}')
    # The last batch of Delta's query comes again, and is skipped unread.
    assert run(document, broker) == [1, 1]

    assert (tmp_path / "checkpoint" / "0" / "commits" / "1").exists()
    assert in_delta(tmp_path) == list(range(31))
    stored = spark.read.format("jdbc").options(url=url, dbtable="ids").load()
    assert sorted(row[0] for row in stored.collect()) == list(range(31))
