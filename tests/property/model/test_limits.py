"""Limits from files and definitions: any JSON is refused by name, or reads back as written."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.identity.user_limits import UserLimits, read_user_limits
from penstock.metadata.limits import Limits, read_limits
from penstock.model.errors import InvalidArgumentError
from penstock.model.limits import KEYS

KEY = st.sampled_from([*KEYS.values(), "max-shoes", ""]) | st.text(max_size=5)
VALUE = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
)
WRITTEN = st.dictionaries(KEY, VALUE, max_size=4)


@given(WRITTEN)
def test_limits_are_refused_or_read_as_they_are_written(written: dict[str, Any]) -> None:
    for read in (lambda: read_limits("/", written), lambda: read_user_limits("anna", written)):
        try:
            found: Limits | UserLimits = read()
        except InvalidArgumentError:
            continue
        expected = {key: value for key, value in written.items() if value is not None and value >= 0}
        assert found.written() == expected
        assert json.loads(json.dumps(found.written())) == expected


@given(st.builds(UserLimits, *[st.none() | st.integers(1, 2**31 - 1)] * 6))
def test_what_is_written_reads_the_same(limits: UserLimits) -> None:
    assert read_user_limits("anna", limits.written()) == limits
