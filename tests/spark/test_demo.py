"""The demo of a pipeline, run as `make demo-pipeline` runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_demo_shows_both_tables_and_draws_the_picture_of_the_documents(tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"

    done = subprocess.run(
        [sys.executable, "-m", "examples.demo_pipeline", str(picture)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-4_000:]
    assert "published 12,000 requests" in done.stdout
    assert "the stream 'traffic-by-hour': 115 rows" in done.stdout
    assert "the Parquet folder: 115 rows" in done.stdout
    assert picture.read_bytes() == (ROOT / "docs" / "images" / "demo-pipeline.png").read_bytes()
