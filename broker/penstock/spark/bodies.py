"""Shared parts of all body decoders: a reason for each bad body, and Arrow arrays of the others.

A codec returns a Python object per body. A value that does not fit its type makes the body bad like any other fault.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

__all__ = ["REASON_LENGTH_MAX", "BodyError", "Decode", "DecodeBodies", "decoded_bodies", "quoted"]

REASON_LENGTH_MAX = 300
# Exceptions that Arrow raises for a value that does not fit its type.
UNFIT = (pa.ArrowException, OverflowError, ValueError, TypeError)


class BodyError(Exception):
    """A body that cannot be decoded; the text is the reason."""


Decode = Callable[[bytes], dict[str, Any]]
# Returns a struct for each body, and the reason by row where there is a null instead.
DecodeBodies = Callable[[pa.Array], tuple[pa.Array, dict[int, str]]]


def decoded_bodies(bodies: pa.Array, kind: pa.StructType, decode: Decode) -> tuple[pa.Array, dict[int, str]]:
    """Return a struct for each body, and the reason by row where there is a null instead."""
    values: list[dict[str, Any] | None] = []
    reasons: dict[int, str] = {}
    for row, body in enumerate(bodies.to_pylist()):
        try:
            values.append(decode(body))
        except BodyError as error:
            values.append(None)
            reasons[row] = str(error)[:REASON_LENGTH_MAX]
    try:
        return pa.array(values, kind), reasons
    except UNFIT:
        return one_by_one(values, kind, reasons)


def one_by_one(
    values: Sequence[dict[str, Any] | None], kind: pa.StructType, reasons: dict[int, str]
) -> tuple[pa.Array, dict[int, str]]:
    """Decode a batch row by row, because it has a value that does not fit."""
    pieces, found = [], dict(reasons)
    for row, value in enumerate(values):
        try:
            pieces.append(pa.array([value], kind))
        except UNFIT as error:
            pieces.append(pa.nulls(1, kind))
            found[row] = f"a value does not fit its column: {error}"[:REASON_LENGTH_MAX]
    return pa.concat_arrays(pieces), found


def quoted(name: str) -> str:
    """Return a field's name, quoted for Spark's schema parser."""
    return "`" + name.replace("`", "``") + "`"
