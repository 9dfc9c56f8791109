"""The offset that a Spark checkpoint has: whole after a round trip, and refused when it is not understood."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.errors import OptionError
from penstock.spark.positions import Position, offset_json, parse_offset

AT = Position("events", "id-1", 120, 100, ((1, 0), (60, 50)))


def test_an_offset_is_the_same_after_it_was_stored() -> None:
    positions = {"events-0": AT, "events-1": Position("events", "id-2", 1, 0)}

    stored = json.loads(json.dumps(offset_json(positions)))

    assert parse_offset(stored) == positions
    assert stored["partitions"]["events-1"] == {"stream": "events", "id": "id-2", "next": 1, "rows": 0}
    assert json.dumps(offset_json(parse_offset(stored))) == json.dumps(stored)


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ({"events-0": 17}, "no version, and this release reads version 2: start with a new checkpoint"),
        ({"version": 3, "partitions": {}}, "a version of Penstock's offsets that is unknown here"),
        ({"owner": "lake", "lease": 3, "parts": 1}, "no version"),
        ([], "no version"),
        ({"version": 2}, "is corrupt: 'partitions'"),
        ({"version": 2, "partitions": {"a": {"stream": "a", "id": "1", "next": -1, "rows": 0}}}, "'-1' is not a whole"),
        (
            {"version": 2, "partitions": {"a": {"stream": "a", "id": "1", "next": 5, "rows": 5, "cuts": [[9, 1]]}}},
            "the cuts of 'a' do not ascend",
        ),
        (
            {"version": 2, "partitions": {"a": {"stream": "a", "id": "1", "next": 5, "rows": 5, "cuts": [[1]]}}},
            "is corrupt",
        ),
    ],
)
def test_an_offset_that_is_not_understood_is_refused_in_a_sentence(stored: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse_offset(stored)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner)))
def test_any_partitions_are_understood_or_refused(partitions: Any) -> None:
    try:
        found = parse_offset({"version": 2, "partitions": partitions})
    except OptionError:
        return
    assert all(isinstance(at, Position) for at in found.values())
