"""Routing keys of topic exchanges: variables in patterns are literal names."""

import pytest

from penstock.identity import TopicPermission
from penstock.model.errors import InvalidArgumentError
from penstock.model.records import Access


@pytest.mark.parametrize(
    ("pattern", "key", "is_allowed"),
    [
        ("app\\..*", "app.error", True),
        ("app\\..*", "my.app.error", False),
        ("", "", True),
        ("", "a", False),
        ("{username}\\..*", "a.na.x", True),
        ("{username}\\..*", "aXna.x", False),
        ("{vhost}-{username}", "/-a.na", True),
        ("a{2}", "aa", True),
    ],
)
def test_a_pattern_matches_a_whole_key(pattern, key, is_allowed):
    topic = TopicPermission.compile("a.na", "/", pattern, "")

    assert topic.allows(Access.WRITE, key) is is_allowed


def test_writing_and_reading_have_patterns_of_their_own():
    topic = TopicPermission.compile("anna", "/", "w", "r")

    assert topic.allows(Access.WRITE, "w")
    assert topic.allows(Access.READ, "r")
    assert not topic.allows(Access.READ, "w")


@pytest.mark.parametrize("pattern", ["(", "(?=a)", "{client_id}.x", "{username"])
def test_a_pattern_that_cannot_be_honoured_is_refused(pattern):
    with pytest.raises(InvalidArgumentError) as refused:
        TopicPermission.compile("anna", "/", pattern, "")

    assert refused.value.field == "write"


def test_two_are_the_same_when_their_patterns_are():
    assert TopicPermission.compile("anna", "/", "a", "b") == TopicPermission.compile("anna", "/", "a", "b")
    assert TopicPermission.compile("anna", "/", "a", "b") != TopicPermission.compile("anna", "/", "a", "c")
