"""The configuration page lists the existing settings."""

from pathlib import Path
from typing import Any

import typer

from penstock.cli.main import app
from penstock.node.config import Settings
from penstock.node.config_table import FLAGS, table

PAGE = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"


def test_the_page_holds_the_table_of_the_model():
    text = PAGE.read_text()
    begin, end = "<!-- settings: begin -->\n", "<!-- settings: end -->"

    shown = text[text.index(begin) + len(begin) : text.index(end)]

    assert shown.strip() == table().strip(), "run: python -m penstock.node.config_table"


def test_the_page_names_the_flags_that_serve_has():
    command: Any = typer.main.get_command(app)
    options = {option.name for option in command.commands["serve"].params}

    assert options & set(Settings.model_fields) == FLAGS
