"""`penstock pipeline` without Spark: writing a document and checking one."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.cli.pipeline import pipeline_module


def test_what_init_writes_validate_finds_right(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"

    written = CliRunner().invoke(app, ["pipeline", "init", str(file)])
    checked = CliRunner().invoke(app, ["pipeline", "validate", str(file), "--output", "json"])

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
        pipeline_module("penstock_nowhere")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", *arguments])


def test_a_document_is_exported_as_a_project_that_is_right(tmp_path: Path) -> None:
    file, folder = tmp_path / "orders.yaml", tmp_path / "orders"
    invoke("init", str(file))

    exported = invoke("export", str(file), str(folder))
    checked = invoke("validate", str(folder), "--output", "json")

    assert (exported.exit_code, checked.exit_code) == (0, 0)
    assert "spark-pipelines run" in exported.stdout
    assert json.loads(checked.stdout) == {"name": "orders"}


def test_a_project_is_written_to_begin_with(tmp_path: Path) -> None:
    assert invoke("init", "--declarative", str(tmp_path / "visits")).exit_code == 0

    assert invoke("validate", str(tmp_path / "visits")).stdout == "the specification of 'visits' is right\n"


@pytest.mark.parametrize(
    ("place", "flags", "text"),
    [
        ("orders.yaml", ["--batches", "1"], "a triggered pipeline ends by itself"),
        ("orders.yaml", ["--seconds", "1"], "a triggered pipeline ends by itself"),
        ("orders.yaml", ["--schedule"], "the document has no 'schedule'"),
        ("visits", ["--batches", "1"], "a project ends by itself"),
        ("visits", ["--schedule"], "--schedule is for documents"),
    ],
)
def test_what_a_run_has_no_use_for_is_refused(tmp_path: Path, place: str, flags: list[str], text: str) -> None:
    invoke("init", str(tmp_path / "orders.yaml"))
    invoke("init", "--declarative", str(tmp_path / "visits"))

    refused = invoke("run", str(tmp_path / place), *flags)

    assert refused.exit_code != 0
    assert text in refused.stderr
