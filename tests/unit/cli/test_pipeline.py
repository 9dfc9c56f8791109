"""`penstock pipeline` as far as it goes without Spark: writing a document and checking one."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.cli.pipeline import rooms


def test_what_init_writes_validate_finds_right(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"

    written = CliRunner().invoke(app, ["pipeline", "init", str(file)])
    checked = CliRunner().invoke(app, ["pipeline", "validate", str(file), "--json"])

    assert f"penstock pipeline run {file}" in written.stdout
    assert json.loads(checked.stdout) == {"name": "orders", "mode": "triggered", "sinks": 1}


@pytest.mark.parametrize("command", ["validate", "run"])
def test_a_wrong_document_is_one_line_and_a_failure(tmp_path: Path, command: str) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text("name: orders\nsources: {}\n")

    done = CliRunner().invoke(app, ["pipeline", command, str(file)])

    assert done.exit_code == 1
    assert done.stderr.startswith("penstock: the document has 'sources'; it may have: name")
    assert done.stderr.count("\n") == 1


def test_what_is_missing_is_told_with_what_brings_it() -> None:
    with pytest.raises(ValueError, match=r"penstock_nowhere is missing; install 'penstock\[spark\]'"):
        rooms("penstock_nowhere")
