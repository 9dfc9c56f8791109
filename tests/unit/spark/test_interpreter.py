"""The interpreter for Spark: this Python, with its modules and without Spark's archive before them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.interpreter import write_interpreter


def test_it_is_this_python_and_finds_what_this_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    folder = tmp_path / "with a 'quote"
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": "/somewhere/pyspark.zip"}
    code = "import sys, penstock.spark.wire; print(sys.executable); print('/somewhere/pyspark.zip' in sys.path)"

    done = subprocess.run(
        [write_interpreter(folder), "-c", code], env=environment, capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines() == [sys.executable, "False"]


def test_another_python_that_was_named_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")

    assert write_interpreter(tmp_path) == "/opt/python"
    assert list(tmp_path.iterdir()) == []
