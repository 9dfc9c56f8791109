"""Patterns that people give: what is one, and that none of them can hold the broker for long."""

import time

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
    "source",
    [
        "(a+)+$",
        "(.*)*",
        "(a*b*)*c",
        "((a{2,})*)b",
        ".*.*.*.*.*.*=",
        "(?:a+){10}",
        "(?=(a+)+b)",
        "(a|b+)+",
        "[ab]*[ab]*[ab]*[ab]*c",
    ],
)
def test_a_pattern_that_explodes_is_refused_by_name(source):
    with pytest.raises(InvalidArgumentError, match="can take too long"):
        compile_pattern("read", source)


@pytest.mark.parametrize("source", ["^orders", "^a.*b.*c.*", "a.*b.*", "", ".*", "^(a|b)+$", "[a-z]+[0-9]+$"])
def test_ordinary_patterns_may_be_looked_for_anywhere(source):
    assert compile_pattern("policy", source, is_searched=True).pattern == source


@pytest.mark.parametrize("source", [".*.*.*c", "[ab]*[ab]*[ab]*", "[ab]*[ab]*[ab]*[ab]*c", "^a*a*a*a*b"])
def test_looking_anywhere_counts_as_one_repeat_more(source):
    with pytest.raises(InvalidArgumentError, match="can take too long"):
        compile_pattern("policy", source, is_searched=True)


@pytest.mark.parametrize("source", ["[ab]*[ab]*[ab]*c", "(?:[ab]*){3}c"])
def test_the_dearest_pattern_that_is_let_through_is_cheap_over_the_longest_name(source):
    """Some 10 ms; a hundred times as much would still not be seconds that others wait."""
    compiled = compile_pattern("read", source)
    started = time.process_time()

    assert compiled.fullmatch("a" * 255) is None
    assert time.process_time() - started < 2


@pytest.mark.parametrize("source", ["(", "a{99999999999}", "[", "(?P<a>x)(?P<a>y)"])
def test_what_is_no_pattern_is_refused(source):
    with pytest.raises(InvalidArgumentError, match="no regular expression"):
        compile_pattern("read", source)


def test_a_pattern_too_long_to_read_is_refused():
    with pytest.raises(TooLargeError):
        compile_pattern("read", "a" * (PATTERN_LENGTH_MAX + 1))
