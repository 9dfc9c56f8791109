"""Headers bindings."""

import pytest

from penstock.model.arguments import Arguments
from penstock.routing.headers import matches


def test_all_is_the_rule_when_nothing_is_said() -> None:
    arguments: Arguments = {"format": "pdf", "pages": 3}

    assert matches(arguments, {"format": "pdf", "pages": 3, "more": 1})
    assert not matches(arguments, {"format": "pdf"})
    assert not matches(arguments, {"format": "pdf", "pages": 4})


def test_any_needs_one() -> None:
    arguments: Arguments = {"x-match": "any", "format": "pdf", "pages": 3}

    assert matches(arguments, {"pages": 3})
    assert not matches(arguments, {"pages": 4, "format": "ps"})


@pytest.mark.parametrize(
    ("how", "expected"), [("all", True), ("any", False), ("all-with-x", True), ("any-with-x", False)]
)
def test_without_arguments_all_matches_everything_and_any_nothing(how: str, expected: bool) -> None:
    assert matches({"x-match": how}, {}) is expected
    assert matches({"x-match": how}, {"format": "pdf"}) is expected


def test_arguments_with_an_x_count_only_when_asked_for() -> None:
    assert matches({"x-match": "all", "x-team": "blue"}, {})
    assert not matches({"x-match": "any", "x-team": "blue"}, {"x-team": "blue"})
    assert matches({"x-match": "any-with-x", "x-team": "blue"}, {"x-team": "blue"})
    assert not matches({"x-match": "all-with-x", "x-team": "blue"}, {})


def test_an_argument_without_a_value_asks_for_presence_only() -> None:
    assert matches({"format": None}, {"format": "pdf"})
    assert matches({"format": None}, {"format": None})
    assert not matches({"format": None}, {})


@pytest.mark.parametrize(("wanted", "found"), [(1, 1.0), (1, True), ("a", b"a"), (True, 1)])
def test_types_must_agree(wanted: object, found: object) -> None:
    assert not matches({"a": wanted}, {"a": found})  # type: ignore[dict-item]


def test_x_match_itself_is_never_compared() -> None:
    assert matches({"x-match": "all-with-x"}, {"x-match": "any"})
