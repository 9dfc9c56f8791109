"""`penstock pipeline` for documents that archive a stream: written, checked, and distinguished from the others."""

import json
from pathlib import Path

from typer.testing import CliRunner

from penstock.cli.main import app


def invoke(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["pipeline", *arguments])
    return done.exit_code, done.output


def test_a_document_that_archives_is_written_and_right(tmp_path: Path) -> None:
    file = str(tmp_path / "orders.yaml")

    assert invoke("init", file, "--archive")[0] == 0
    status, output = invoke("validate", file, "--output", "json")

    assert (status, json.loads(output)) == (
        0,
        {"name": "orders", "stream": "orders", "to": str(tmp_path / "archive")},
    )


def test_what_is_wrong_with_it_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("name: a\narchive: {stream: events}\n")

    assert invoke("run", str(file)) == (1, "penstock: archive lacks 'to'\n")


def test_other_pipelines_are_checked_as_ever(tmp_path: Path) -> None:
    file = str(tmp_path / "orders.yaml")
    invoke("init", file)

    assert invoke("validate", file)[1] == "pipeline 'orders' is right: triggered, 1 sink\n"
