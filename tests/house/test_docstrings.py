"""Keeps ruff's rules of docstrings on in every package and for tests, so that no exception comes back unseen."""

import tomllib
from pathlib import Path

SETTINGS = Path(__file__).resolve().parents[2] / "pyproject.toml"


def ignoring(settings: str) -> set[str]:
    """Return the paths for which a rule of docstrings is switched off; `*` stands for all."""
    lint = tomllib.loads(settings)["tool"]["ruff"]["lint"]
    paths = {path for path, codes in lint["per-file-ignores"].items() if any(is_of_style(code) for code in codes)}
    return paths | ({"*"} if any(is_of_style(code) for code in lint["ignore"]) else set())


def is_of_style(code: str) -> bool:
    """Return whether a code is, or contains, rules of the groups D2 and D4."""
    return code in ("ALL", "D") or code.startswith(("D2", "D4"))


def test_the_rules_of_docstrings_are_on_in_every_package() -> None:
    text = SETTINGS.read_text()

    selected = tomllib.loads(text)["tool"]["ruff"]["lint"]["select"]

    assert {"D2", "D4"} <= set(selected)
    assert ignoring(text) == set()


def test_an_exception_for_a_package_is_found() -> None:
    text = '[tool.ruff.lint]\nignore = []\n[tool.ruff.lint.per-file-ignores]\n"broker/penstock/node/*" = ["D401"]\n'

    assert ignoring(text) == {"broker/penstock/node/*"}


def test_a_rule_that_is_ignored_everywhere_is_found() -> None:
    text = '[tool.ruff.lint]\nignore = ["D205"]\n[tool.ruff.lint.per-file-ignores]\n"a.py" = ["DTZ"]\n'

    assert ignoring(text) == {"*"}
