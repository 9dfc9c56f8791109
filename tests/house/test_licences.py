"""The licence check finds violations."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[2] / "tools" / "check_licences.py"
SPEC = importlib.util.spec_from_file_location("check_licences", PATH)
assert SPEC is not None
assert SPEC.loader is not None
check = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check)
ALLOWED = frozenset({"MIT", "Apache-2.0", "BSD-3-Clause"})


@pytest.mark.parametrize(
    ("expression", "is_taken"),
    [
        ("MIT", True),
        ("MIT/Apache-2.0", True),
        ("GPL-3.0 OR MIT", True),
        ("(MIT OR GPL-3.0) AND BSD-3-Clause", True),
        ("GPL-3.0", False),
        ("MIT AND GPL-3.0", False),
        ("", False),
    ],
)
def test_an_expression_needs_a_choice_that_is_taken_in_every_part(expression: str, is_taken: bool) -> None:
    assert check.is_taken(expression, ALLOWED) is is_taken


def test_a_package_that_is_not_what_the_lock_says_is_found() -> None:
    assert "not installed" in check.problem_of("no-such-package", "1.0")
    assert "requirements.lock says 0.0" in check.problem_of("pytest", "0.0")


def test_everything_that_is_pinned_is_under_a_licence_that_is_taken() -> None:
    assert [problem for name, version in check.pinned() if (problem := check.problem_of(name, version))] == []
