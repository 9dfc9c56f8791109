"""Pieces of a read: rows, and how far the broker is with the range.

The broker filters rows, so the rows alone do not say which messages it looked at. Its reports do, in the metadata of
each batch; see docs/flight.md.
"""

import json
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.spark.answers import number, of_known_form

__all__ = ["Piece", "piece_of"]


class Piece(NamedTuple):
    """Rows, the offset behind all messages that were looked at, and how many those were since the piece before."""

    rows: pa.RecordBatch
    next: int
    seen: int


def piece_of(chunk: Any) -> Piece:
    """Return the piece that a chunk of Flight is. Rows without a report, as those of a lease, are all that was seen.

    Raises SparkConnectorError when the report has another form.
    """
    rows = chunk.data
    if chunk.app_metadata is None:
        return Piece(rows, rows["offset"][-1].as_py() + 1 if rows.num_rows else 0, rows.num_rows)
    with of_known_form("a read"):
        report = json.loads(chunk.app_metadata.to_pybytes())
        return Piece(rows, number(report["next"]), number(report["seen"]))
