"""Topic patterns against a matcher by plain recursion."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.routing.topic import matches

words = st.sampled_from(["a", "b", "", "*", "#"])


def naive(pattern: list[str], key: list[str]) -> bool:
    if not pattern:
        return not key
    if pattern[0] == "#":
        return naive(pattern[1:], key) or (bool(key) and naive(pattern, key[1:]))
    return bool(key) and pattern[0] in ("*", key[0]) and naive(pattern[1:], key[1:])


@given(st.lists(words, min_size=1, max_size=6), st.lists(words, min_size=1, max_size=6))
def test_the_matcher_agrees_with_plain_recursion(pattern: list[str], key: list[str]) -> None:
    assert matches(".".join(pattern), ".".join(key)) == naive(pattern, key)
