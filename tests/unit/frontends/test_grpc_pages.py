"""Tokens of pages: those of the longest names come back whole, and others are refused before they cost time."""

import json

import pytest

from penstock.frontends.grpc.pages import name_after, next_name, next_parts, number_after, parts_after
from penstock.model.errors import InvalidArgumentError
from penstock.model.names import NAME_BYTES_MAX

LONGEST = ("\x01" * NAME_BYTES_MAX, "é" * (NAME_BYTES_MAX // 2), "\U0001f600" * (NAME_BYTES_MAX // 4))


@pytest.mark.parametrize("name", LONGEST)
def test_a_token_of_the_longest_names_comes_back_whole(name: str) -> None:
    place = [name, name, "exchange", name, "0" * 32]
    assert parts_after(next_parts(place), len(place)) == place
    assert name_after(next_name([name], 1)) == name


def test_a_token_that_is_too_long_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 14 MB, of a user without any permission, stopped all decisions for half a second."""
    read: list[str] = []
    monkeypatch.setattr(json, "loads", read.append)
    for token in ("after:[" + "1," * 5_000 + "1]", "after:" + "a" * 10_000):
        with pytest.raises(InvalidArgumentError, match="was not issued by this broker"):
            parts_after(token, 2)
        with pytest.raises(InvalidArgumentError, match="was not issued by this broker"):
            name_after(token)
        with pytest.raises(InvalidArgumentError, match="was not issued by this broker"):
            number_after(token)
    assert read == []


@pytest.mark.parametrize(
    "text", ["", "[", "[" * 2_000, "{}", '["a"]', '["a", 1]', '["a", null]', json.dumps(["a"] * 3)]
)
def test_a_token_of_other_parts_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="was not issued by this broker"):
        parts_after("after:" + text, 2)
