"""What all decoders of single bodies share: a reason for each body that is bad, and Arrow's arrays of the others.

Values are Python objects on their way: a codec gives one for each body, and what does not fit its type is a bad body
like any other.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

__all__ = ["REASON_LENGTH_MAX", "BodyError", "Decode", "decoded_bodies", "quoted"]

REASON_LENGTH_MAX = 300
# What Arrow raises for a value that its type has no place for.
UNFIT = (pa.ArrowException, OverflowError, ValueError, TypeError)


class BodyError(Exception):
    """A body that cannot be decoded; the text is the reason."""


Decode = Callable[[bytes], dict[str, Any]]


def decoded_bodies(bodies: pa.Array, kind: pa.StructType, decode: Decode) -> tuple[pa.Array, dict[int, str]]:
    """A struct for each body, and by row why there is none where there is null."""
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
    """The same for a batch that has a value in it that does not fit."""
    pieces, found = [], dict(reasons)
    for row, value in enumerate(values):
        try:
            pieces.append(pa.array([value], kind))
        except UNFIT as error:
            pieces.append(pa.nulls(1, kind))
            found[row] = f"a value does not fit its column: {error}"[:REASON_LENGTH_MAX]
    return pa.concat_arrays(pieces), found


def quoted(name: str) -> str:
    """A field's name in a schema as Spark parses it."""
    return "`" + name.replace("`", "``") + "`"
