"""The examples of pipelines as their heads say they are run, by the command and against a real broker."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from support import Broker
from support.broker import penstock_command

ROOT = Path(__file__).resolve().parents[2]
MEASURES = (
    '{"room": "hall", "degrees": 20.5, "at": "2026-01-31T12:10:00Z"}',
    '{"room": "attic", "degrees": 28, "at": "2026-01-31T12:20:00Z"}',
    "not JSON",
    '{"room": "hall", "degrees": 21.5, "at": "2026-01-31T12:30:00Z"}',
    '{"room": "kitchen", "degrees": 18, "at": "2026-01-31T13:30:00Z"}',
)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A copy, so that what they write is the test's."""
    shutil.copytree(ROOT / "examples" / "pipelines", tmp_path / "pipelines")
    return tmp_path / "pipelines"


def run(file: Path, broker: Broker) -> dict[str, object]:
    """The summary; what it told on the way is shown when it failed."""
    environment = {**os.environ, "PENSTOCK_URI": broker.uri(), "PYTHONPATH": str(ROOT / "broker")}
    environment["PYSPARK_PYTHON"] = sys.executable
    done = subprocess.run(
        [penstock_command(), "pipeline", "run", str(file), "--json"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    summary: dict[str, object] = json.loads(done.stdout)
    return summary


def rows(connection: penstock.Connection, stream: str) -> list[dict[str, object]]:
    return [json.loads(message.body) for message in connection.stream(stream).read("first", until="next")]


def test_the_examples_run_and_a_second_run_stores_nothing_twice(
    broker: Broker, connection: penstock.Connection, examples: Path
) -> None:
    for stream in ("measures", "measures-bad", "warm", "degrees-by-hour"):
        connection.declare_stream(stream)
    connection.stream("measures").publish_many([text.encode() for text in MEASURES])

    first = run(examples / "warm-rooms.yaml", broker)
    again = run(examples / "warm-rooms.yaml", broker)
    by_hour = run(examples / "degrees-by-hour.yaml", broker)

    # Two sinks, each of which reads the rows that could be decoded.
    assert first["rows"] == [4, 4]
    assert again["rows"] == [0, 0]
    assert by_hour["rows"] == [5]
    warm = rows(connection, "warm")
    assert sorted((row["room"], row["floor"], row["degrees"]) for row in warm) == [
        ("attic", "2", 28.0),
        ("hall", "0", 20.5),
        ("hall", "0", 21.5),
    ]
    assert list((examples / "target" / "warm").glob("*.parquet"))
    # Either sink's query has its own bad records.
    bad = [message.body for message in connection.stream("measures-bad").read("first", until="next")]
    assert bad == [b"not JSON"] * 2
    means = {(row["room"], row["measures"]): row["degrees"] for row in rows(connection, "degrees-by-hour")}
    # The kitchen's hour is not over: nothing newer than its measure has come.
    assert means == {("hall", 2): 21.0, ("attic", 1): 28.0}
