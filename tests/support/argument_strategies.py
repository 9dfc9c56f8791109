"""Hypothesis strategies for argument values, and for short names that often collide."""

import math

from hypothesis import strategies

from penstock.model.arguments import Decimal, Timestamp, Value

texts = strategies.text(strategies.characters(codec="utf-8"), max_size=8)


def values_with(floats: strategies.SearchStrategy[float]) -> strategies.SearchStrategy[Value]:
    """Return values whose floating-point numbers are drawn from those."""
    scalars: strategies.SearchStrategy[Value] = strategies.one_of(
        strategies.none(),
        strategies.booleans(),
        strategies.integers(-(2**63), 2**63 - 1),
        floats,
        texts,
        strategies.binary(max_size=8),
        strategies.builds(Timestamp, strategies.integers(0, 2**64 - 1)),
        strategies.builds(Decimal, strategies.integers(0, 255), strategies.integers(-(2**31), 2**31 - 1)),
    )
    return strategies.recursive(
        scalars,
        lambda inner: strategies.one_of(
            strategies.lists(inner, max_size=3), strategies.dictionaries(texts, inner, max_size=3)
        ),
        max_leaves=8,
    )


def arguments_of(values: strategies.SearchStrategy[Value]) -> strategies.SearchStrategy[dict[str, Value]]:
    return strategies.dictionaries(texts, values, max_size=4)


values = values_with(strategies.floats())
arguments = arguments_of(values)

# JSON has one NaN: its bits are lost.
json_arguments = arguments_of(
    values_with(strategies.one_of(strategies.floats(allow_nan=False), strategies.just(math.nan)))
)
