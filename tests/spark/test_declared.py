"""A project of Spark Declarative Pipelines: by PySpark's own command, then by ours."""

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
    b'{"room": "hall", "degrees": 20.5, "at": "2026-01-31T12:10:00Z"}',
    b'{"room": "attic", "degrees": 28, "at": "2026-01-31T12:20:00Z"}',
    b'{"room": "kitchen", "degrees": 18, "at": "2026-01-31T13:30:00Z"}',
)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Copy the example, with a folder of the test's own for Spark's state."""
    shutil.copytree(ROOT / "examples" / "pipelines", tmp_path / "pipelines")
    folder = tmp_path / "pipelines" / "warm_rooms"
    specification = folder / "spark-pipeline.yml"
    text = specification.read_text()
    assert "file:///tmp/penstock/warm_rooms" in text
    specification.write_text(text.replace("file:///tmp/penstock/warm_rooms", (tmp_path / "storage").as_uri()))
    return folder


def run(command: list[str], folder: Path, broker: Broker, python: str) -> str:
    environment = {**os.environ, "PENSTOCK_URI": broker.uri(), "PYTHONPATH": str(ROOT / "broker")}
    environment["PYSPARK_PYTHON"] = python
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6_000:]
    return done.stdout


def rooms(connection: penstock.Connection) -> list[str]:
    return [json.loads(message.body)["room"] for message in connection.stream("warm").read("first", until="next")]


def test_the_example_project_runs_by_either_command_and_each_row_is_stored_once(
    broker: Broker, connection: penstock.Connection, project: Path, interpreter: str
) -> None:
    for stream in ("measures", "warm"):
        connection.declare_stream(stream)
    before = len(rooms(connection))
    connection.stream("measures").publish_many(list(MEASURES))
    own_command = str(Path(sys.executable).with_name("spark-pipelines"))

    run([own_command, "run"], project, broker, interpreter)
    first = rooms(connection)[before:]
    connection.stream("measures").publish(MEASURES[0])
    command = [penstock_command(), "pipeline", "run", str(project), "--output", "json"]
    summary = json.loads(run(command, project, broker, sys.executable))

    assert sorted(first) == ["attic", "hall"]
    assert sorted(rooms(connection)[before:]) == ["attic", "hall", "hall"]
    assert list((project / "target" / "warm").glob("*.parquet"))
    # Two flows, each of which read the one new measure.
    assert (summary["rows"], summary["batches"]) == ([1, 1], [1, 1])
