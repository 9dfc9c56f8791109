"""Batch reads, and the task code that both readers share.

The offsets of a DataFrame are fixed when Spark plans it: every action on it and every retry of a task reads the same
rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.spark.archives import check_archives, check_complete, note_lost
from penstock.spark.columns import needed, own_columns, shown
from penstock.spark.decoding import Decoder
from penstock.spark.described import Partition
from penstock.spark.errors import OptionError
from penstock.spark.losses import checked, remaining
from penstock.spark.options import ReadOptions
from penstock.spark.places import EARLIEST, LATEST, Place, resolved
from penstock.spark.ranges import OffsetRange, lost_between, ranges_of, spans_of
from penstock.spark.shares import SPLITS_MAX
from penstock.spark.streams import DescribedStreams
from penstock.spark.wire import Wire

__all__ = ["BatchReader", "RangePartition", "offsets_of", "read_range"]

OF_QUERIES = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger")


@dataclass
class RangePartition(InputPartition):  # type: ignore[misc]
    """The range that one task reads; `origin` names the read, for messages that it publishes."""

    wanted: OffsetRange
    origin: str


class BatchReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        values = (options.max_offsets, options.max_bytes, options.min_offsets)
        for name, value in zip(OF_QUERIES, values, strict=True):
            if value is not None:
                raise OptionError(f"'{name}' belongs to readStream; a batch ends at endingOffsets")
        if options.group:
            raise OptionError("'group' belongs to readStream: it follows a query; a batch has no progress to store")
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with Wire(options.uri, options.retry_seconds) as wire:
            streams = DescribedStreams(wire, options.subscription)
            there = streams.look()
            start = offsets_of(streams, options.starting or EARLIEST, there, options.time_strategy)
            end = offsets_of(streams, options.ending or LATEST, there, "latest")
        for name, offset in start.items():
            check_within(there[name], offset)
        self._check_there(there)
        for name, offset in start.items():
            check_order(there[name], options, offset, end[name])
        # Do not wait for rows that were written meanwhile, or never.
        spans = [(each, start[name], min(end[name], each.next)) for name, each in sorted(there.items())]
        ranges = ranges_of(spans_of(spans, options.limits, options.fail_on_data_loss))
        if not options.fail_on_data_loss:
            lost = {each.name: lost_between(each, low, each.rows_before(low), high) for each, low, high in spans}
            note_lost({name: rows for name, rows in lost.items() if rows > 0})
        if options.split_rows_max is not None and len(ranges) > SPLITS_MAX + len(there):
            raise OptionError(
                f"'maxRecordsPerPartition' makes {len(ranges)} tasks, and a read has at most {SPLITS_MAX}; raise it"
            )
        # The broker must not take the bad records of another read, or of a stream declared again, for repetitions.
        name = uuid4().hex
        return [
            RangePartition(each, f"{name}/{options.dead_letters}/{each.partition}/{each.start}-{each.end}")
            for each in ranges
        ]

    def _check_there(self, there: Mapping[str, Partition]) -> None:
        options = self._options
        starting, ending = options.starting or EARLIEST, options.ending or LATEST
        # Of ends, only times are looked up in an archive.
        places = [starting, *([ending] if ending.kind == "times" else [])]
        check_archives(places, there, options.fail_on_data_loss)
        if options.subscription.assigned is None:
            check_complete(there, options.fail_on_data_loss)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes its own partition when there is none.
        if not isinstance(partition, RangePartition):
            return iter(())
        return read_range(partition, self._options, self._schema)


def offsets_of(
    streams: DescribedStreams, place: Place, there: Mapping[str, Partition], strategy: str
) -> dict[str, int]:
    """Return the offset of a place in each partition; look each time up once."""
    place.check_names(there)
    return resolved(place, there, {time: streams.at_time(time) for time in place.times(there)}, strategy)


def check_within(partition: Partition, start: int) -> None:
    """Raise OptionError when a read begins behind the end of a partition, where rows might be passed over."""
    if start > partition.next:
        raise OptionError(
            f"the read begins at offset {start} of partition '{partition.name}', which ends at {partition.next}; begin "
            "with 'latest' or with an offset that is there"
        )


def check_order(partition: Partition, options: ReadOptions, start: int, end: int) -> None:
    """Raise OptionError when a start that the options name is behind the end that they name: no row is between.

    A start at the first message may be behind it, as retention removes messages.
    """
    is_named = options.starting is not None and options.ending is not None
    if is_named and start > max(end, partition.first):
        raise OptionError(
            f"the read of partition '{partition.name}' begins at offset {start}, behind its end at {end}; exchange "
            "them, or leave one out"
        )


def read_range(partition: RangePartition, options: ReadOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield record batches in Spark's schema. Runs in an executor."""
    wanted = partition.wanted
    if wanted.start == wanted.end:
        return
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    own = own_columns(arrow_schema, options)
    columns = needed(own.names, options)
    with (
        Wire(options.uri, options.retry_seconds) as wire,
        Decoder(wire, options.decoding, wanted, partition.origin) as decoder,
    ):
        if options.fail_on_data_loss:
            pieces = checked(wire.read_pieces(wanted, columns, options.filters), wanted, wire)
        else:
            filters = {**options.filters, "skip_unreadable": True}
            pieces = remaining(wire.read_pieces(wanted, columns, filters), wanted, wire)
        for piece in pieces:
            rows = decoder.decode(piece.rows, own)
            if rows.num_rows:
                yield shown(rows, arrow_schema, options, wanted.stream, wanted.partition)
