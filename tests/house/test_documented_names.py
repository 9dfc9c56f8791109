"""Check names in documents that `test_documents.py` does not: lists of commands, variables, names of the client.

Only names in code are read.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import penstock
from penstock.cli.main import app
from penstock.node.config import Settings

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("examples/*/*.md")])
OF_SPARK = {"DATA_SOURCE_NOT_FOUND"}
COMMAND: Any = typer.main.get_command(app)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def lists_of_commands(text: str) -> Iterator[tuple[str, set[str]]]:
    """Return the commands of each `penstock GROUP one|two|three`."""
    for group, names in re.findall(r"`penstock ([a-z]+) ([a-z-]+(?:\|[a-z-]+)+)", " ".join(text.split())):
        yield group, set(names.split("|"))


def unknown_variables(text: str) -> list[str]:
    """Return variables that are neither settings of the broker nor in any source."""
    names = set(re.findall(r"\b[A-Z]{2,}(?:_[A-Z]+)+\b", " ".join(re.findall(r"`[^`]+`", text))))
    settings = {f"PENSTOCK_{name.upper()}" for name in Settings.model_fields}
    return sorted(name for name in names - settings - OF_SPARK if not is_in_sources(name))


def is_in_sources(name: str) -> bool:
    command = ["git", "grep", "--quiet", "--fixed-strings", name, "--", ":!*.md", ":!tests/house"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def unknown_names(text: str) -> set[str]:
    """Return names of the client that the package does not have."""
    return {name for name in re.findall(r"\bpenstock\.([A-Z]\w+)", text) if name not in dir(penstock)}


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_lists_of_commands_name_commands(document: Path) -> None:
    unknown = [
        f"penstock {group} {name}"
        for group, names in lists_of_commands(document.read_text())
        for name in sorted(names - set(COMMAND.commands[group].commands))
    ]

    assert unknown == []


def test_the_list_of_commands_for_streams_is_complete() -> None:
    text = (ROOT / "docs" / "streams.md").read_text()

    assert ("stream", set(COMMAND.commands["stream"].commands)) in list(lists_of_commands(text))


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_variables_and_names_of_the_client_exist(document: Path) -> None:
    text = document.read_text()

    assert unknown_variables(text) == []
    assert unknown_names(text) == set()


def test_a_wrong_name_is_found() -> None:
    assert list(lists_of_commands("`penstock stream\nread|rewind`")) == [("stream", {"read", "rewind"})]
    assert unknown_variables("`PENSTOCK_COFFEE=off`, `PENSTOCK_GRPC`") == ["PENSTOCK_COFFEE"]
    assert unknown_names("`penstock.Massage`, `penstock.Message`") == {"Massage"}
