"""Properties and headers written to protobuf read back equal."""

import struct
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.properties import Properties, encode_properties, read_properties
from penstock.client.values import Timestamp, Value

names = st.text(st.characters(codec="utf-8"), max_size=20)
texts = st.none() | names.filter(bool)
decimals = st.builds(
    lambda unscaled, scale: Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale)),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 255),
)
plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | names
    | st.binary(max_size=20)
    | st.integers(0, 2**64 - 1).map(Timestamp)
    | decimals
)
values: st.SearchStrategy[Value] = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=12
)
properties = st.builds(
    Properties,
    content_type=texts,
    content_encoding=texts,
    headers=st.dictionaries(names, values, max_size=5),
    delivery_mode=st.sampled_from([1, 2]),
    priority=st.none() | st.integers(0, 255),
    correlation_id=texts,
    reply_to=texts,
    expiration=texts,
    message_id=texts,
    timestamp=st.none() | st.integers(0, 2**64 - 1),
    type=texts,
    user_id=texts,
    app_id=texts,
)


def kinds(value: Value) -> object:
    """Return the types of a value, all the way down: 1, True, 1.0 and a timestamp are equal and not the same."""
    if isinstance(value, dict):
        return {name: kinds(item) for name, item in value.items()}
    if isinstance(value, list):
        return [kinds(item) for item in value]
    return struct.pack("<d", value) if isinstance(value, float) else type(value)


@given(properties)
def test_properties_survive_their_bytes(given_properties: Properties) -> None:
    found = read_properties(encode_properties(given_properties))

    assert found == given_properties
    assert kinds(dict(found.headers)) == kinds(dict(given_properties.headers))
