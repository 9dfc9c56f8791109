"""Checks the pages of docs/decisions: each has a number of its own, by which other pages name it."""

import re
from collections import Counter
from pathlib import Path

DECISIONS = sorted((Path(__file__).resolve().parents[2] / "docs" / "decisions").iterdir())


def test_every_decision_has_a_number_of_its_own() -> None:
    numbers = Counter(path.name.split("-")[0] for path in DECISIONS)

    assert [path.name for path in DECISIONS if not re.fullmatch(r"\d{4}(-[a-z0-9]+)+\.md", path.name)] == []
    assert [number for number, count in numbers.items() if count > 1] == []


def test_a_number_in_a_title_is_that_of_the_file() -> None:
    titles = {path.name: path.read_text().splitlines()[0] for path in DECISIONS}
    numbered = {name: int(found[1]) for name, title in titles.items() if (found := re.match(r"# (\d+)\. ", title))}

    assert [name for name, number in numbered.items() if number != int(name.split("-")[0])] == []
