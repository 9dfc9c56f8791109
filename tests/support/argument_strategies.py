"""Hypothesis strategies for argument values, and for short names that often meet."""

from hypothesis import strategies

from penstock.model.arguments import Decimal, Timestamp, Value

texts = strategies.text(strategies.characters(codec="utf-8"), max_size=8)

scalars: strategies.SearchStrategy[Value] = strategies.one_of(
    strategies.none(),
    strategies.booleans(),
    strategies.integers(-(2**63), 2**63 - 1),
    strategies.floats(),
    texts,
    strategies.binary(max_size=8),
    strategies.builds(Timestamp, strategies.integers(0, 2**64 - 1)),
    strategies.builds(Decimal, strategies.integers(0, 255), strategies.integers(-(2**31), 2**31 - 1)),
)

values: strategies.SearchStrategy[Value] = strategies.recursive(
    scalars,
    lambda inner: strategies.one_of(
        strategies.lists(inner, max_size=3), strategies.dictionaries(texts, inner, max_size=3)
    ),
    max_leaves=8,
)

arguments = strategies.dictionaries(texts, values, max_size=4)
