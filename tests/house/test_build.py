"""Checks what the build and the checks cover: every Python file is type-checked."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_test_is_type_checked() -> None:
    mypy = PROJECT["tool"]["mypy"]

    assert "tests" in mypy["files"]
    assert [pattern for pattern in mypy["exclude"] if "tests" in pattern] == []
    assert [each["module"] for each in mypy["overrides"] if each.get("ignore_errors")] == [["penstock.v1.*"]]
