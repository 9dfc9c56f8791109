"""Patterns against Python's own engine, which agrees on simple ones, and names inside patterns."""

import re

from hypothesis import event, given
from hypothesis import strategies as st

from penstock.identity import TopicPermission
from penstock.model.errors import InvalidArgumentError
from penstock.model.records import Access
from penstock.native.patterns import compile_pattern

CHARACTERS = "abcAB.-_0é٣ß😀 \udced\udcff\ud800"
ATOMS = st.sampled_from(
    ["a", "b", "é", "😀", ".", r"\.", r"\d", r"\w", r"\s", "[a-c]", "[^ab]", "[a_-]", r"\b", "^", "$"]
)
REPEATS = st.sampled_from(["", "", "*", "+", "?", "*?", "{2}", "{1,3}", "{0,2}", "{2,}"])


@st.composite
def repeated(draw, inner):
    return f"(?:{draw(inner)}){draw(REPEATS)}"


EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        repeated(inner),
        st.lists(inner, max_size=4).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
    ),
    max_leaves=8,
)
TEXTS = st.text(CHARACTERS, max_size=8)


@given(EXPRESSIONS, st.lists(TEXTS, max_size=8), st.sampled_from(["", "(?i)"]))
def test_a_simple_pattern_matches_what_it_matches_in_python(source, texts, flags):
    source = flags + source
    theirs = re.compile(source)
    whole, part = compile_pattern("read", source), compile_pattern("policy", source, is_searched=True)

    for text in texts:
        assert whole.matches(text) is (theirs.fullmatch(text) is not None), (source, text)
        assert part.matches(text) is (theirs.search(text) is not None), (source, text)


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_name_stands_for_itself_in_the_pattern_of_a_topic(user, vhost):
    topic = TopicPermission.compile(user, vhost, "{username}/{vhost}", "")

    assert topic.allows(Access.WRITE, f"{user}/{vhost}")
    assert not topic.allows(Access.WRITE, f"{user}/{vhost}.")


@given(st.text(max_size=60))
def test_any_text_is_compiled_or_refused(source):
    try:
        pattern = compile_pattern("read", source)
    except InvalidArgumentError as refusal:
        event(refusal.rule)
    else:
        assert pattern.source == source
