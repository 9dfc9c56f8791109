"""Patterns that users supply: refusals, and that no match takes long."""

import pytest

from penstock.model.errors import InvalidArgumentError, TooLargeError
from penstock.native.patterns import PATTERN_LENGTH_MAX, compile_pattern

COSTLY_TO_BACKTRACKERS = [
    "(a+)+$",
    "(aa|a)+$",
    "(.*)*=",
    "(a*b*)*c",
    ".*.*.*.*.*.*=",
    "(?:a+){10}=",
    "[ab]*[ab]*[ab]*[ab]*c",
    "a?" * 30 + "a" * 30 + "=",
]


@pytest.mark.parametrize("source", ["", ".*", "^orders\\.(paid|late)$", "(a|b|c)*", "(x{1,3}y)?", "amq\\.gen-\\w{22}"])
@pytest.mark.parametrize("is_searched", [False, True])
def test_ordinary_patterns_are_accepted(source, is_searched):
    assert compile_pattern("read", source, is_searched=is_searched).source == source


@pytest.mark.parametrize("source", COSTLY_TO_BACKTRACKERS)
@pytest.mark.parametrize("is_searched", [False, True])
def test_a_pattern_that_makes_other_engines_backtrack_is_matched_at_once(source, is_searched):
    pattern = compile_pattern("policy", source, is_searched=is_searched)

    assert not any(pattern.matches("a" * 254 + "!") for _ in range(100))


@pytest.mark.parametrize(
    ("source", "construct"),
    [
        ("(?=(a+)+b)", "look-around `(?=`"),
        ("^(?!secret).*", "look-around `(?!`"),
        ("(?<=a)b", "look-around `(?<=`"),
        (r"(.)\1", r"back-reference `\1`"),
        ("(?P<n>a)(?P=n)", "back-reference `(?P=`"),
        ("()?(?(1)(a+)+$|x)", "conditional `(?(`"),
        ("(?>a+)", "atomic group `(?>`"),
        ("a*+", "possessive or double repetition `*+`"),
        (r"a\Z", r"escape `\Z`"),
    ],
)
def test_a_construct_that_is_not_supported_is_named_with_a_way_out(source, construct):
    with pytest.raises(InvalidArgumentError) as refused:
        compile_pattern("read", source)

    assert str(refused.value).startswith(f"pattern '{source}' has the {construct} that is not supported; ")
    assert refused.value.way_out
    assert refused.value.field == "read"


@pytest.mark.parametrize("source", [r"\<a\>", "[a&&b]", "[a--b]", "[a[b]]"])
def test_what_engines_read_differently_is_refused(source):
    with pytest.raises(InvalidArgumentError, match="that regular expression engines read differently"):
        compile_pattern("read", source)


@pytest.mark.parametrize("source", ["(", "[", "(?P<a>x)(?P<a>y)", "a**b**", "{name}", "a{99999999999}", "(" * 1_000])
def test_a_text_that_is_no_pattern_is_refused(source):
    with pytest.raises(InvalidArgumentError, match=r"regular expression|repetition"):
        compile_pattern("read", source)


@pytest.mark.parametrize("source", ["(?:(?:[a-z.]{0,16}){16}){16}!", "a{99999}", r"\w{60}"])
def test_a_pattern_with_too_large_counts_is_refused(source):
    with pytest.raises(InvalidArgumentError, match="repetition"):
        compile_pattern("read", source)


def test_a_pattern_longer_than_the_bound_is_refused():
    assert compile_pattern("read", "a" * PATTERN_LENGTH_MAX).matches("a" * PATTERN_LENGTH_MAX)
    with pytest.raises(TooLargeError):
        compile_pattern("read", "a" * (PATTERN_LENGTH_MAX + 1))


def test_a_pattern_that_is_not_unicode_is_refused():
    with pytest.raises(InvalidArgumentError, match="not valid Unicode"):
        compile_pattern("read", "a\ud800")


@pytest.mark.parametrize(
    ("source", "is_match"), [("a.", True), ("a..", False), (r"a\w", False), ("a[^b]", True), ("a", False)]
)
def test_a_byte_that_is_not_utf_8_counts_as_one_character(source, is_match):
    text = b"a\xed".decode(errors="surrogateescape")

    assert compile_pattern("read", source).matches(text) is is_match


def test_patterns_are_equal_when_their_source_and_their_extent_are():
    assert compile_pattern("read", "a") == compile_pattern("write", "a")
    assert hash(compile_pattern("read", "a")) == hash(compile_pattern("write", "a"))
    assert compile_pattern("read", "a") != compile_pattern("read", "a", is_searched=True)
    assert compile_pattern("read", "a") != compile_pattern("read", "b")


@pytest.mark.parametrize(
    ("source", "is_searched", "is_match"),
    [
        (".*", False, False),
        ("^a.*$", False, False),
        ("(?s).*", False, True),
        ("a[^x]b", False, True),
        (".*", True, True),
        ("^a", True, True),
        ("^a.*$", True, False),
        ("(?s)^a.*$", True, True),
    ],
)
def test_a_dot_does_not_match_a_line_end(source, is_searched, is_match):
    """As in Erlang's `re`, which RabbitMQ uses. A permission with `.*` then allows no name with a line end."""
    assert compile_pattern("read", source, is_searched=is_searched).matches("a\nb") is is_match


@pytest.mark.parametrize("is_searched", [False, True])
def test_a_dollar_does_not_match_before_a_line_end(is_searched):
    """It does in Erlang's `re`: there a policy for `^a$` also applies to the queue "a\\n"."""
    assert not compile_pattern("read", "^a$", is_searched=is_searched).matches("a\n")
