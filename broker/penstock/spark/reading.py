"""Batch reads, and the task code that both readers share.

The offsets of a DataFrame are fixed when Spark plans it: every action on it and every retry of a task reads the same
rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.spark.columns import needed, own_columns, picked, shown
from penstock.spark.decoding import Decoder
from penstock.spark.errors import OptionError
from penstock.spark.losses import checked
from penstock.spark.options import EARLIEST, LATEST, Place, ReadOptions
from penstock.spark.ranges import OffsetRange, Offsets, ranges_between, resolved, split
from penstock.spark.wire import Described, Wire

__all__ = ["BatchReader", "RangePartition", "offsets_of", "read_range"]


@dataclass
class RangePartition(InputPartition):  # type: ignore[misc]
    """The range that one task reads; `origin` names the read, for messages that it publishes."""

    wanted: OffsetRange
    origin: str


class BatchReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        for name, value in (("maxOffsetsPerTrigger", options.max_offsets), ("maxBytesPerTrigger", options.max_bytes)):
            if value is not None:
                raise OptionError(f"'{name}' belongs to readStream; a batch ends at endingOffsets")
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with Wire(options.uri, options.retry_seconds) as wire:
            there = wire.describe(options.stream)
            start = offsets_of(wire, options.stream, options.starting or EARLIEST, there)
            end = offsets_of(wire, options.stream, options.ending or LATEST, there)
        # Do not wait for rows that were written meanwhile, or never.
        end = {partition: min(offset, there.end[partition]) for partition, offset in end.items()}
        ranges = ranges_between(start, end, there.first, options.fail_on_data_loss, there.gone)
        # The broker must not take the bad records of another read, or of a stream declared again, for repetitions.
        name = uuid4().hex
        return [
            RangePartition(each, f"{name}/{options.dead_letters}/{each.partition}/{each.start}-{each.end}")
            for each in split(ranges, options.min_partitions)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes its own partition when there is none.
        if not isinstance(partition, RangePartition):
            return iter(())
        return read_range(partition, self._options, self._schema)


def offsets_of(wire: Wire, stream: str, place: Place, there: Described) -> Offsets:
    """Return the offset of a place in each partition; look each time up once."""
    at_time: Offsets = {}
    if place.kind == "times":
        times = {partition: place.of(partition) for partition in there.end}
        found = {time: wire.offsets_at(stream, time) for time in set(times.values())}
        at_time = {partition: found[time][partition] for partition, time in times.items()}
    return resolved(place, there.first, there.end, at_time)


def read_range(partition: RangePartition, options: ReadOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield record batches in Spark's schema. Runs in an executor."""
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    own = own_columns(arrow_schema, options)
    columns = needed(own.names, options)
    with (
        Wire(options.uri, options.retry_seconds) as wire,
        Decoder(wire, options.decoding, partition.wanted, partition.origin) as decoder,
    ):
        batches = wire.read(partition.wanted, columns)
        if options.fail_on_data_loss:
            batches = checked(batches, partition.wanted, options.stream, wire)
        for batch in batches:
            rows = decoder.decode(picked(batch, options), own)
            if rows.num_rows:
                yield shown(rows, arrow_schema, options, partition.wanted.partition)
