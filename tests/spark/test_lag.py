"""The listener that publishes the lag of queries: from Spark's own progress, as log lines and as a gauge."""

import json
import logging
import socket
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

import penstock
from penstock.spark.errors import OptionError
from penstock.spark.lag import LagListener
from penstock.spark.positions import Position, offset_json
from support import Broker
from support.broker import free_ports
from support.waiting import eventually

GAUGE = "penstock_spark_lag_rows"


def offset(**rows: int) -> str:
    return json.dumps(offset_json({name: Position("s", "id", at, at) for name, at in rows.items()}))


def event(batch: int, end: str, latest: str) -> Any:
    source = SimpleNamespace(endOffset=end, latestOffset=latest)
    return SimpleNamespace(progress=SimpleNamespace(id="q", name="copy", batchId=batch, sources=[source]))


def test_a_gauge_has_the_lag_of_each_partition_until_its_query_ends(caplog: pytest.LogCaptureFixture) -> None:
    registry = CollectorRegistry()
    listener = LagListener(registry=registry)

    def lag(partition: str) -> float | None:
        return registry.get_sample_value(GAUGE, {"query": "copy", "stream": "s", "partition": partition})

    with caplog.at_level(logging.INFO, "penstock"):
        listener.onQueryProgress(event(0, offset(a=10, b=10), offset(a=10, b=35)))
    assert (lag("a"), lag("b")) == (0, 25)
    assert caplog.messages == ["query 'copy', batch 0: 25 rows behind in 2 partitions: b 25"]

    listener.onQueryProgress(event(1, offset(b=35), offset(b=36)))
    assert (lag("a"), lag("b")) == (None, 1)

    listener.onQueryTerminated(SimpleNamespace(id="q"))
    assert (lag("a"), lag("b")) == (None, None)


def test_a_port_serves_the_gauge_until_the_listener_is_closed() -> None:
    (port,) = free_ports(1)
    for _ in range(2):
        listener = LagListener(port)
        listener.onQueryProgress(event(0, offset(a=1), offset(a=8)))

        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            text = response.read().decode()

        assert f'{GAUGE}{{partition="a",query="copy",stream="s"}} 7.0' in text
        listener.close()


def test_a_port_that_cannot_be_used_is_named_and_may_be_tried_again() -> None:
    registry = CollectorRegistry()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for _ in range(2):
            with pytest.raises(
                OptionError, match=rf"^metrics cannot be served at 127\.0\.0\.1:{port}: .*in use; choose another port"
            ):
                LagListener(port, registry=registry)
    with pytest.raises(OptionError, match=r"^metrics cannot be served at 127\.0\.0\.1:70000: .*; choose another port"):
        LagListener(70_000, registry=registry)

    LagListener(port, registry=registry).close()


def test_sources_of_other_formats_are_no_matter_for_it() -> None:
    registry = CollectorRegistry()

    LagListener(registry=registry).onQueryProgress(event(0, '{"logOffset":1}', '{"logOffset":5}'))

    assert registry.get_sample_value(GAUGE) is None


@pytest.mark.slow
def test_a_query_reports_how_far_it_is_behind_after_each_batch(
    spark: SparkSession,
    broker: Broker,
    connection: penstock.Connection,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = f"lagging-{uuid4().hex[:8]}"
    connection.declare_stream(name)
    connection.stream(name).publish_many([b"%d" % number for number in range(10)])
    listener = LagListener()
    spark.streams.addListener(listener)
    try:
        with caplog.at_level(logging.INFO, "penstock"):
            query = (
                spark.readStream.format("penstock")
                .options(uri=broker.uri(), stream=name, startingOffsets="earliest", maxOffsetsPerTrigger="4")
                .load()
                .writeStream.format("noop")
                .queryName(name)
                .option("checkpointLocation", str(tmp_path))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(100)
            lines = [
                f"query '{name}', batch 0: 6 rows behind in 1 partition: {name} 6",
                f"query '{name}', batch 1: 2 rows behind in 1 partition: {name} 2",
                f"query '{name}', batch 2: 0 rows behind in 1 partition",
            ]
            eventually(lambda: [line for line in caplog.messages if name in line], lines)
    finally:
        spark.streams.removeListener(listener)
        connection.delete_stream(name)
