"""Topic patterns."""

import pytest

from penstock.routing.topic import matches


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("web.error", "web.error"),
        ("web.*", "web.error"),
        ("*.*", "web.error"),
        ("#", ""),
        ("#", "web.error.disk"),
        ("web.#", "web"),
        ("web.#", "web.error.disk"),
        ("#.disk", "web.error.disk"),
        ("#.#", "web"),
        ("web.#.disk", "web.disk"),
        ("web.#.*.disk", "web.error.disk"),
        ("", ""),
        ("*", ""),
        ("a..b", "a..b"),
        ("a.*.b", "a..b"),
    ],
)
def test_a_pattern_matches_its_keys(pattern: str, key: str) -> None:
    assert matches(pattern, key)


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("web.error", "web.errors"),
        ("web.*", "web"),
        ("web.*", "web.error.disk"),
        ("*", "web.error"),
        ("#.disk", "web.error"),
        ("web.#.*.disk", "web.disk"),
        ("", "web"),
        ("web", ""),
        ("we*", "web"),
    ],
)
def test_a_pattern_does_not_match_others(pattern: str, key: str) -> None:
    assert not matches(pattern, key)


def test_many_hashes_do_not_blow_up() -> None:
    assert not matches(".".join(["#", "a"] * 40), ".".join(["a"] * 39 + ["b"] * 39))
