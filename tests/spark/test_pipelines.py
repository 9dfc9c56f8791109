"""The examples of pipelines, each by the commands in its head and with a real broker."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest

import penstock
from support import Broker, eventually

ROOT = Path(__file__).resolve().parents[2]
MEASURES = (
    '{"room": "hall", "degrees": 20.5, "at": "2026-01-31T12:10:00Z"}',
    '{"room": "attic", "degrees": 28, "at": "2026-01-31T12:20:00Z"}',
    "not JSON",
    '{"room": "hall", "degrees": 21.5, "at": "2026-01-31T12:30:00Z"}',
    '{"room": "kitchen", "degrees": 18, "at": "2026-01-31T13:30:00Z"}',
)
REQUEST = '{"at": "2026-03-02T%s:00:00Z", "method": "%s", "path": "%s", "status": %d, "bytes": 10}'
REQUESTS = (
    REQUEST % ("10", "GET", "/items/7", 200),
    REQUEST % ("10", "GET", "/search?q=rug", 500),
    REQUEST % ("10", "HEAD", "/health", 200),
    REQUEST % ("10", "GET", "/", 200),
    REQUEST % ("12", "GET", "/cart/1", 200),
)
# On a busy machine Spark and the first batch take minutes.
SECONDS_MAX = 600
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]


class Examples:
    """A copy of the examples, so that their output is the test's, and a virtual host of the test's."""

    def __init__(self, folder: Path, broker: Broker, vhost: str) -> None:
        self.pipelines = folder / "examples" / "pipelines"
        shutil.copytree(ROOT / "examples" / "pipelines", self.pipelines)
        self._folder = folder
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self._environment = {**os.environ, "PENSTOCK_URI": broker.uri(vhost), "PATH": path}
        self._environment |= {"PYTHONPATH": str(ROOT / "broker")}
        self._environment.pop("PYSPARK_PYTHON", None)

    def commands(self, name: str) -> list[list[str]]:
        """Return the commands in the head of an example."""
        lines = (self.pipelines / name).read_text().splitlines()
        heads = [part for line in lines if line.startswith("# penstock ") for part in line[2:].split(";")]
        return [shlex.split(head) for head in heads]

    def declare(self, name: str) -> None:
        for command in self.commands(name)[:-1]:
            subprocess.run(command, cwd=self._folder, env=self._environment, check=True, capture_output=True)

    def start(self, name: str, *more: str) -> "subprocess.Popen[str]":
        command = [*self.commands(name)[-1], "--output", "json", *more]
        log = (self._folder / "stderr").open("w")
        with log:
            return subprocess.Popen(
                command, cwd=self._folder, env=self._environment, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def finish(self, process: "subprocess.Popen[str]") -> dict[str, Any]:
        """Return the summary; the output is shown when it failed."""
        try:
            told, _ = process.communicate(timeout=SECONDS_MAX)
        finally:
            process.kill()
        assert process.returncode == 0, self.stderr[-4_000:]
        summary: dict[str, Any] = json.loads(told)
        return summary

    def run(self, name: str, *more: str) -> dict[str, Any]:
        return self.finish(self.start(name, *more))

    @property
    def stderr(self) -> str:
        return (self._folder / "stderr").read_text()


@pytest.fixture
def vhost(connection: penstock.Connection) -> str:
    name = f"pipelines-{uuid4().hex[:12]}"
    connection.admin.create_vhost(name)
    connection.admin.set_permission("guest", name, configure=".*", write=".*", read=".*")
    return name


@pytest.fixture
def examples(tmp_path: Path, broker: Broker, vhost: str) -> Examples:
    return Examples(tmp_path, broker, vhost)


@pytest.fixture
def own(broker: Broker, vhost: str) -> Any:
    with penstock.connect(broker.uri(vhost), native=False) as connection:
        yield connection


def rows(connection: penstock.Connection, stream: str) -> list[dict[str, Any]]:
    return [json.loads(message.body) for message in connection.stream(stream).read("first", until="next")]


def publish(connection: penstock.Connection, stream: str, *texts: str) -> None:
    connection.stream(stream).publish_many([text.encode() for text in texts])


def test_warm_rooms_runs_and_a_second_run_stores_nothing_twice(examples: Examples, own: penstock.Connection) -> None:
    examples.declare("warm-rooms.yaml")
    publish(own, "measures", *MEASURES)

    first = examples.run("warm-rooms.yaml")
    again = examples.run("warm-rooms.yaml")

    # Two sinks, each of which reads the decodable rows.
    assert first["rows"] == [4, 4]
    assert again["rows"] == [0, 0]
    assert sorted((row["room"], row["floor"], row["degrees"]) for row in rows(own, "warm")) == [
        ("attic", "2", 28.0),
        ("hall", "0", 20.5),
        ("hall", "0", 21.5),
    ]
    assert list((examples.pipelines / "target" / "warm").glob("*.parquet"))
    # Both sinks read it, and the first publishes it.
    bad = [message.body for message in own.stream("measures-bad").read("first", until="next")]
    assert bad == [b"not JSON"]


def test_degrees_by_hour_runs(examples: Examples, own: penstock.Connection) -> None:
    examples.declare("degrees-by-hour.yaml")
    publish(own, "measures", *MEASURES)

    assert examples.run("degrees-by-hour.yaml")["rows"] == [5]

    means = {(row["room"], row["measures"]): row["degrees"] for row in rows(own, "degrees-by-hour")}
    # The kitchen's hour is not over: its measure is the newest.
    assert means == {("hall", 2): 21.0, ("attic", 1): 28.0}


def test_shop_traffic_runs(examples: Examples, own: penstock.Connection) -> None:
    examples.declare("shop-traffic.yaml")
    publish(own, "requests", *REQUESTS)

    assert examples.run("shop-traffic.yaml")["rows"] == [5, 5]

    found = {(row["section"], row["requests"], row["errors"]) for row in rows(own, "traffic-by-hour")}
    assert found == {("catalogue", 2, 1), ("home", 1, 0)}


def test_warm_now_follows_the_stream_until_it_is_ended_and_goes_on_there(
    examples: Examples, own: penstock.Connection
) -> None:
    examples.declare("warm-now.yaml")
    publish(own, "measures", *MEASURES[:2])

    process = examples.start("warm-now.yaml")
    try:
        eventually(lambda: process.poll() is not None or len(rows(own, "warm-now")) >= 2, True, SECONDS_MAX)
        publish(own, "measures", MEASURES[3])
        eventually(lambda: process.poll() is not None or len(rows(own, "warm-now")) >= 3, True, SECONDS_MAX)
        eventually(lambda: process.poll() is not None or "batch 1, 1 rows" in examples.stderr, True, SECONDS_MAX)
        process.send_signal(signal.SIGTERM)
        first = examples.finish(process)
    finally:
        process.kill()
    publish(own, "measures", MEASURES[0])
    second = examples.run("warm-now.yaml", "--batches", "1")

    assert (first["rows"], first["batches"]) == ([3], [2])
    assert "stopping" in examples.stderr
    assert (second["rows"], second["batches"]) == ([1], [1])
    assert sorted(row["room"] for row in rows(own, "warm-now")) == ["attic", "hall", "hall", "hall"]


def test_an_example_moves_what_is_old_to_parquet(examples: Examples, own: penstock.Connection) -> None:
    examples.declare("archive.yaml")
    publish(own, "measures", *MEASURES)
    young = examples.run("archive.yaml")
    document = examples.pipelines / "archive.yaml"
    document.write_text(document.read_text().replace("olderThan: 1h", "olderThan: 0s"))

    old = examples.run("archive.yaml")

    assert (young["rows"], old["rows"]) == (0, len(MEASURES))
    table = pq.read_table(next(examples.pipelines.glob("archived/*/measures/date=*/*.parquet")))
    assert [body.decode() for body in table["body"].to_pylist()] == list(MEASURES)


def test_every_example_is_run_here() -> None:
    """The project has a test of its own."""
    there = {path.name for path in (ROOT / "examples" / "pipelines").glob("*.yaml")}

    assert there == {"archive.yaml", "warm-rooms.yaml", "degrees-by-hour.yaml", "shop-traffic.yaml", "warm-now.yaml"}
