"""The configuration page lists the existing settings."""

from pathlib import Path

from penstock.node.config_table import table

PAGE = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"


def test_the_page_holds_the_table_of_the_model():
    text = PAGE.read_text()
    begin, end = "<!-- settings: begin -->\n", "<!-- settings: end -->"

    shown = text[text.index(begin) + len(begin) : text.index(end)]

    assert shown.strip() == table().strip(), "run: python -m penstock.node.config_table"
