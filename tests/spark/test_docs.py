"""The examples of the document, run as written and in order, on one new broker."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import Broker
from support.broker import free_ports

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "spark.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), flags=re.MULTILINE | re.DOTALL)
PLACE = "127.0.0.1:5680"
# Preconditions of the examples about queues, and a check that they worked.
ORDERS = """
with penstock.connect(URI) as broker:
    broker.declare_queue("orders")
    broker.declare_stream("lake")
    broker.publish_many([b"order"] * 10, routing_key="orders")
"""
DONE = """
lake = spark.read.format("penstock").options(uri=URI, stream="lake").load().count()
print("moved", lake, "saved", spark.read.parquet("orders/1").count())
"""
COPIED = """
with penstock.connect(URI) as broker:
    broker.declare_stream("copied")
measured = spark.read.format("penstock").options(uri=URI, stream="measures").load()
# A driver that dies between the two has its batch again.
for _ in range(2):
    copy(measured, 0)
print("copied", spark.read.format("penstock").options(uri=URI, stream="copied").load().count())
"""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]


def run(example: str, broker: Broker, folder: Path, interpreter: str) -> str:
    """Return the output of an example."""
    assert PLACE in example
    environment = {**os.environ, "PYSPARK_PYTHON": interpreter, "PYTHONPATH": str(ROOT / "broker")}
    command = [sys.executable, "-c", example.replace(PLACE, broker.address)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=1_000
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout


def test_the_examples_of_the_document_print_rows(tmp_path: Path, interpreter: str) -> None:
    tables, without_spark, copying, moving, saving, lag = EXAMPLES
    assert all(text in lag for text in ("builder.", "port=9464", "level=logging.INFO"))
    lag = lag.replace("builder.", 'builder.master("local[2]").').replace("9464", str(free_ports(1)[0]))
    lag = lag.replace("level=logging.INFO", "level=logging.INFO, stream=__import__('sys').stdout")
    queues = f"{ORDERS}{moving}query.awaitTermination(){ORDERS}{saving}{DONE}"

    with Broker(tmp_path / "data") as broker:
        with_spark = run(lag + tables + copying + COPIED + queues, broker, tmp_path, interpreter)
        without = run(without_spark, broker, tmp_path, interpreter)

    assert re.search(r"\|hall\| +20\.5\|", with_spark)
    assert "moved 10 saved 10" in with_spark
    assert "copied 1\n" in with_spark
    assert "batch 0: 0 rows behind in 1 partition" in with_spark
    # As a pyarrow list, a Polars frame and a DuckDB list.
    assert without.count("degrees") == 2
    assert "'key': b'hall'" in without
    assert "[('hall', 1)]" in without
