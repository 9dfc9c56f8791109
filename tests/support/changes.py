"""Hypothesis strategies for the content of a definitions file."""

from hypothesis import strategies as st

from penstock.model.arguments import Decimal, Timestamp
from penstock.model.names import QUEUE_ID_MAX, ExchangeName, QueueId, QueueName, RoutingKey
from penstock.model.records import Binding, DestinationKind, Exchange, ExchangeKind, Queue
from penstock.storage import Bound, Declared, ExchangeDeleted, QueueDeleted, Unbound

keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.sampled_from(["a", "b", "c", "größe", "日本", "x" * 255])
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    keys,
    st.binary(max_size=20),
    st.integers(0, 2**64 - 1).map(Timestamp),
    st.builds(Decimal, st.integers(0, 255), st.integers(-(2**31), 2**31 - 1)),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=6
)
arguments = st.dictionaries(keys, values, max_size=4)
exchanges = st.builds(
    Exchange,
    names.map(ExchangeName),
    st.sampled_from(ExchangeKind),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    arguments,
)
queues = st.builds(
    Queue, st.integers(1, QUEUE_ID_MAX).map(QueueId), names.map(QueueName), st.booleans(), st.booleans(), arguments
)
bindings = st.builds(
    Binding,
    names.map(ExchangeName),
    st.sampled_from(DestinationKind),
    names.map(QueueName),
    names.map(RoutingKey),
    arguments,
)
changes = st.one_of(
    st.builds(Declared, exchanges | queues),
    st.builds(ExchangeDeleted, names.map(ExchangeName)),
    st.builds(QueueDeleted, names.map(QueueName)),
    st.builds(Bound, bindings),
    st.builds(Unbound, bindings),
)
