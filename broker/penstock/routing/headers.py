"""Matches a headers binding's arguments against a message's headers.

`x-match` says whether all must match or any, and whether arguments whose name starts with `x-` count; it never counts
itself. An argument without a value requires only that the header exists. Types must agree, widths of integers need not.
"""

from typing import Final

from penstock.model.arguments import Arguments, Value, is_same
from penstock.model.records import X_MATCH, HeadersMatch

WITH_X: Final = frozenset({HeadersMatch.ALL_WITH_X, HeadersMatch.ANY_WITH_X})
ANY: Final = frozenset({HeadersMatch.ANY, HeadersMatch.ANY_WITH_X})


def matches(arguments: Arguments, headers: Arguments) -> bool:
    """Return whether the headers match: all of no arguments match everything, any of none matches nothing."""
    how = _how(arguments)
    wanted = {key: value for key, value in arguments.items() if _counts(key, how)}
    met = (key in headers and _is_met(value, headers[key]) for key, value in wanted.items())
    return any(met) if how in ANY else all(met)


def _how(arguments: Arguments) -> HeadersMatch:
    value = arguments.get(X_MATCH)
    return HeadersMatch(value) if isinstance(value, str) else HeadersMatch.ALL


def _counts(key: str, how: HeadersMatch) -> bool:
    if key == X_MATCH:
        return False
    return how in WITH_X or not key.startswith("x-")


def _is_met(wanted: Value, found: Value) -> bool:
    if wanted is None:
        return True
    if isinstance(wanted, float) and isinstance(found, float):
        return wanted == found
    return is_same(wanted, found)
