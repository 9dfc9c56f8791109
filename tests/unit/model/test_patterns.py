"""Patterns that people give: what is one, and that none of them can hold the broker for long."""

import pytest

from penstock.model.errors import InvalidArgumentError, TooLargeError
from penstock.model.patterns import PATTERN_LENGTH_MAX, compile_pattern


@pytest.mark.parametrize(
    "source",
    [
        "",
        ".*",
        "^orders\\.(paid|late)$",
        ".*(?:a.*b).*",
        "(a|b|c)*",
        "[a-z]+-[0-9]+",
        "(x{1,3}y)?",
        "(a.*|b.*|c.*|d.*)",
    ],
)
def test_ordinary_patterns_are_let_through(source):
    assert compile_pattern("read", source).pattern == source


@pytest.mark.parametrize(
    "source", ["(a+)+$", "(.*)*", "(a*b*)*c", "((a{2,})*)b", ".*.*.*.*.*.*=", "(?:a+){10}", "(?=(a+)+b)", "(a|b+)+"]
)
def test_a_pattern_that_explodes_is_refused_by_name(source):
    with pytest.raises(InvalidArgumentError, match="can take too long"):
        compile_pattern("read", source)


@pytest.mark.parametrize("source", ["(", "a{99999999999}", "[", "(?P<a>x)(?P<a>y)"])
def test_what_is_no_pattern_is_refused(source):
    with pytest.raises(InvalidArgumentError, match="no regular expression"):
        compile_pattern("read", source)


def test_a_pattern_too_long_to_read_is_refused():
    with pytest.raises(TooLargeError):
        compile_pattern("read", "a" * (PATTERN_LENGTH_MAX + 1))
