"""Limits from files and definitions: any JSON is refused by name, or reads back as written."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import InvalidArgumentError
from penstock.model.limits import RULES, Holder, Limits, read_limits

KEY = st.sampled_from([*(rule.key for rule in RULES.values()), "max-shoes", ""]) | st.text(max_size=5)
VALUE = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
)
WRITTEN = st.dictionaries(KEY, VALUE, max_size=4)


NUMBER = st.none() | st.integers(1, 2**31 - 1)


@given(st.sampled_from(Holder), WRITTEN)
def test_limits_are_refused_or_read_as_they_are_written(holder: Holder, written: dict[str, Any]) -> None:
    try:
        found = read_limits(holder, "anna", written)
    except InvalidArgumentError:
        return
    expected = {key: value for key, value in written.items() if value is not None and value >= 0}
    assert found.written() == expected
    assert json.loads(json.dumps(found.written())) == expected


@given(st.sampled_from(Holder), st.data())
def test_what_is_written_reads_the_same(holder: Holder, data: st.DataObject) -> None:
    limits = Limits(**{name: data.draw(NUMBER) for name, rule in RULES.items() if holder in rule.holders})

    assert read_limits(holder, "anna", limits.written()) == limits
