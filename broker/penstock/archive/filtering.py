"""The rows of an archive that a reader asks for by key, routing key or header, as the broker filters its log."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["EVERY_ROW", "RowFilter", "kept"]


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Conditions that all rows meet; without any it takes every row."""

    key: bytes | None = None
    routing_key: bytes | None = None
    # A name, and a value as in the column `headers`.
    header: tuple[bytes, bytes] | None = None

    @property
    def columns(self) -> list[str]:
        """Return the columns that it needs."""
        needed = {"key": self.key, "routing_key": self.routing_key, "headers": self.header}
        return [name for name, wanted in needed.items() if wanted is not None]


EVERY_ROW = RowFilter()


def kept(rows: pa.Table, wanted: RowFilter) -> pa.Table:
    """Return the rows that meet all conditions."""
    if wanted.key is not None:
        rows = rows.filter(pc.equal(rows["key"], pa.scalar(wanted.key, pa.binary())))
    if wanted.routing_key is not None:
        routing_keys = rows["routing_key"].cast(pa.binary())
        rows = rows.filter(pc.equal(routing_keys, pa.scalar(wanted.routing_key, pa.binary())))
    if wanted.header is not None:
        rows = rows.take(rows_with(rows["headers"], *wanted.header))
    return rows


def rows_with(headers: pa.ChunkedArray, name: bytes, value: bytes) -> pa.Array:
    """Return the rows that have a header of that name with that value, in order."""
    lists = headers.combine_chunks()
    entries = pc.list_flatten(lists)
    found = pc.and_(is_same(entries.field("key"), name), is_same(entries.field("value"), value))
    return pc.unique(pc.list_parent_indices(lists).filter(pc.fill_null(found, False)))


def is_same(texts: pa.Array, wanted: bytes) -> pa.Array:
    return pc.equal(texts.cast(pa.binary()), pa.scalar(wanted, pa.binary()))
