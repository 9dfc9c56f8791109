"""The examples of the document, run as they are written and in their order, on one broker."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import Broker

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "spark.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), flags=re.MULTILINE | re.DOTALL)
PLACE = "127.0.0.1:5680"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]


def run(example: str, broker: Broker, folder: Path, interpreter: str) -> str:
    """What it printed."""
    assert PLACE in example
    environment = {**os.environ, "PYSPARK_PYTHON": interpreter, "PYTHONPATH": str(ROOT / "broker")}
    command = [sys.executable, "-c", example.replace(PLACE, broker.address)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=1_000
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout


def test_the_examples_of_the_document_print_rows(broker: Broker, tmp_path: Path, interpreter: str) -> None:
    with_spark, without = (run(example, broker, tmp_path, interpreter) for example in EXAMPLES)

    assert re.search(r"\|hall\| +20\.5\|", with_spark)
    # As a list of pyarrow's, a frame of Polars' and a list of DuckDB's.
    assert without.count("degrees") == 2
    assert "'key': b'hall'" in without
    assert "[('hall', 1)]" in without
