"""Patterns match a whole name or not at all."""

import pytest

from penstock.identity import Permission
from penstock.identity.permissions import whole_pattern
from penstock.model.errors import InvalidArgumentError, TooLargeError
from penstock.model.records import Access


@pytest.mark.parametrize(
    ("pattern", "name", "is_allowed"),
    [
        (".*", "anything", True),
        (".*", "", True),
        ("", "", True),
        ("", "a", False),
        ("logs", "logs", True),
        ("logs", "logs.error", False),
        ("logs", "my.logs", False),
        ("^logs", "logs.error", False),
        ("a|b", "b", True),
        ("a|b", "ab", False),
        ("logs", "logs\n", False),
    ],
)
def test_a_pattern_matches_the_whole_name(pattern, name, is_allowed):
    assert Permission.compile("", pattern, "").allows(Access.WRITE, name) is is_allowed


def test_each_access_has_a_pattern_of_its_own():
    permission = Permission.compile("c", "w", "r")

    assert [permission.allows(access, access.value[0]) for access in Access] == [True, True, True]
    assert [permission.pattern(access) for access in Access] == ["c", "w", "r"]
    assert not permission.allows(Access.READ, "w")


def test_a_pattern_that_is_none_is_refused_by_name():
    with pytest.raises(InvalidArgumentError, match="regular expression") as caught:
        Permission.compile("ok", "(", "ok")

    assert caught.value.field == "write"


def test_a_pattern_longer_than_the_bound_is_refused():
    with pytest.raises(TooLargeError):
        Permission.compile("a" * 1_025, "", "")


@pytest.mark.parametrize(
    ("source", "matching", "others"),
    [
        ("", [], ["a"]),
        ("^$", [""], ["a"]),
        (".*", ["", "a"], []),
        ("^.*$", ["", "a"], []),
        ("jobs", ["jobs", "my-jobs-2"], ["job"]),
        ("^jobs", ["jobs", "jobs-2"], ["my-jobs"]),
        ("^jobs$", ["jobs"], ["jobs-2", "my-jobs"]),
        ("^a|b$", ["a1", "1b"], ["1a1"]),
        ("^a\\$", ["a$", "a$b"], ["a"]),
    ],
)
def test_another_broker_s_pattern_matches_what_it_matched_there(source, matching, others):
    permission = Permission.compile(whole_pattern(source), "", "")

    assert [name for name in matching if not permission.allows(Access.CONFIGURE, name)] == []
    assert [name for name in others if permission.allows(Access.CONFIGURE, name)] == []
