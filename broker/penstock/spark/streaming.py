"""Streaming reads: the decisions of the driver for each micro-batch of a query.

An offset of Spark has the first unread offset of each partition, and how the batch that ends there is cut. Both are
decided in `latestOffset`; `partitions` only repeats what the offset says. This module keeps no state of a query: the
Spark checkpoint does.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from math import ceil
from time import monotonic, sleep
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.spark.archives import check_archives, check_complete, note_lost
from penstock.spark.described import Partition
from penstock.spark.errors import NotFoundError, OptionError
from penstock.spark.groups import GroupProgress
from penstock.spark.options import ReadOptions
from penstock.spark.places import LATEST
from penstock.spark.positions import Position, Positions, offset_json, parse_offset
from penstock.spark.ranges import (
    OffsetRange,
    advanced,
    begun,
    check_streams,
    check_whole,
    passed_over,
    ranges_of,
    unread,
)
from penstock.spark.reading import RangePartition, check_within, offsets_of, read_range
from penstock.spark.shares import Limits
from penstock.spark.streams import DescribedStreams
from penstock.spark.wire import Wire

__all__ = ["MicroBatchReader"]

# The least time between two looks at a stream that has new messages of which none is read yet.
LOOK_PAUSE_SECONDS = 0.05
Offset: TypeAlias = dict[str, Any]


class MicroBatchReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(self, options: ReadOptions, schema: StructType, clock: Callable[[], float] = monotonic) -> None:
        if options.ending is not None:
            raise OptionError("'endingOffsets' belongs to a batch; a stream query has no end")
        self._options = options
        self._schema = schema
        self._clock = clock
        self._wire: Wire | None = None
        self._streams: DescribedStreams | None = None
        # The end of an AvailableNow run.
        self._target: dict[str, int] | None = None
        # The offset behind which the last look found nothing to read.
        self._idle_at: Offset | None = None
        self._batch_at: float | None = None
        self._progress: GroupProgress | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 (named by Spark)
        options, streams = self._options, self._at_streams()
        there, starting = streams.look(needs_all=True), options.starting or LATEST
        found = offsets_of(streams, starting, there, options.time_strategy)
        for name, offset in found.items():
            check_within(there[name], offset)
        check_archives([starting], there, options.fail_on_data_loss)
        if options.subscription.assigned is None:
            check_complete(there, options.fail_on_data_loss)
        return offset_json({name: place_of(there[name], offset) for name, offset in sorted(found.items())})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return one of the limits that are set: Spark passes it back, and only one, so the options say the rest."""
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadAllAvailable() if options.min_offsets is None else ReadMinRows(options.min_offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {name: each.next for name, each in self._at_streams().look().items()}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next batch. Wait a while when there is nothing new: Spark would ask again at once."""
        at = parse_offset(start)
        # This includes the last batch of an AvailableNow run, which Spark never commits.
        self._store(at)
        give_up = self._clock() + self._options.poll_timeout_ms / 1_000
        # The last look found nothing: wait at once, so that an idle query makes one call in this time.
        waits = self._idle_at == start and self._target is None
        while True:
            end = self._reached(at, self._at_streams().look(self._wait_ms(give_up) if waits else 0), limit)
            if end is not None:
                self._idle_at, self._batch_at = None, self._clock()
                return offset_json(end)
            self._idle_at = start
            if self._wait_ms(give_up) <= 0 or self._target is not None:
                return start
            if waits:
                sleep(min(LOOK_PAUSE_SECONDS, self._wait_ms(give_up) / 1_000))
            waits = True

    def _wait_ms(self, give_up: float) -> int:
        """Return how long to wait for messages: not beyond a time, nor beyond the end of a delay."""
        now = self._clock()
        left = give_up - now
        if self._options.min_offsets is not None and self._batch_at is not None:
            delay = self._batch_at + self._options.trigger_delay_ms / 1_000 - now
            # After it a batch has what there is, and the query waits for the next message.
            left = min(left, delay) if delay > 0 else left
        return max(0, ceil(left * 1_000))

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """Return the end of all partitions as `latestOffset` saw it, without cuts: Spark asks right afterwards."""
        there = self._at_streams().last
        return offset_json({name: place_of(each, each.next) for name, each in sorted(there.items())})

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the tasks that the end says, and nothing else: Spark may ask `initialOffset` for a start again."""
        if start == end:
            return []
        at = parse_offset(end)
        if self._options.fail_on_data_loss:
            check_streams(at, self._options.subscription.has)
        return [self._task(each) for each in self._planned(ranges_of(at))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        named = replace(partition, origin=f"{query}/{partition.origin}")
        return read_range(named, self._options, self._schema)

    def commit(self, end: Offset) -> None:
        self._store(parse_offset(end))

    def stop(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = self._streams = None
        if self._progress is not None:
            self._progress.close()
            self._progress = None

    def _reached(self, at: Positions, there: dict[str, Partition], limit: ReadLimit) -> Positions | None:
        options, limits = self._options, self._options.limits
        if isinstance(limit, ReadAllAvailable):
            limits = Limits(splits_min=limits.splits_min, split_rows_max=limits.split_rows_max)
        elif self._waits_for_more(at, there):
            return None
        if options.fail_on_data_loss and options.subscription.assigned is None:
            check_complete(there, options.fail_on_data_loss)
        end = advanced(at, there, self._target, limits, options.fail_on_data_loss)
        if end is not None and not options.fail_on_data_loss:
            note_lost(passed_over(at, end, there))
        return end

    def _waits_for_more(self, at: Positions, there: dict[str, Partition]) -> bool:
        """Return whether there are fewer rows than a batch should have at least, and there is time for more."""
        least = self._options.min_offsets
        if least is None or self._target is not None or self._batch_at is None:
            return False
        if self._clock() - self._batch_at >= self._options.trigger_delay_ms / 1_000:
            return False
        starts = begun(at, there, self._options.fail_on_data_loss)
        return sum(unread(there[name], offset) for name, offset in starts.items()) < least

    def _planned(self, ranges: list[OffsetRange]) -> Iterator[OffsetRange]:
        """Yield the ranges; those of a partition that is gone are empty, or raise DataLossError."""
        there = self._described(tuple(dict.fromkeys(each.stream for each in ranges)))
        for each in ranges:
            partition = there.get(each.partition)
            if self._options.fail_on_data_loss:
                partition = check_whole(each, partition)
            if partition is None or partition.id != each.id:
                # The task stays, as a sink may number rows by task.
                yield replace(each, end=each.start, rows=0)
            else:
                yield replace(each, partition_number=partition.number)

    def _described(self, streams: tuple[str, ...]) -> dict[str, Partition]:
        wire = self._connected()
        try:
            return wire.describe(streams) if streams else {}
        except NotFoundError:
            if self._options.fail_on_data_loss:
                raise
        found: dict[str, Partition] = {}
        for stream in streams:
            with suppress(NotFoundError):
                found |= wire.describe((stream,))
        return found

    def _task(self, wanted: OffsetRange) -> RangePartition:
        # A range of the same number begins behind it in the next batch, so its dead letters have ascending sequences.
        # A stream that was declared again begins anew.
        name = f"{self._options.dead_letters}/{wanted.partition}/{wanted.id}/{wanted.number}"
        return RangePartition(wanted, name)

    def _store(self, at: Positions) -> None:
        if not self._options.group:
            return
        if self._progress is None:
            self._progress = GroupProgress(self._options)
        self._progress.store(at)

    def _at_streams(self) -> DescribedStreams:
        if self._streams is None:
            options, wire = self._options, self._connected()
            goes_on = not options.fail_on_data_loss
            self._streams = DescribedStreams(wire, options.subscription, self._clock, goes_on=goes_on)
        return self._streams

    def _connected(self) -> Wire:
        """Return the connection, made at first use: Spark pickles this reader for its executors before."""
        if self._wire is None:
            self._wire = Wire(self._options.uri, self._options.retry_seconds)
        return self._wire

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_wire": None, "_streams": None, "_progress": None}


def place_of(partition: Partition, offset: int) -> Position:
    where = (partition.stream, partition.id, offset)
    return Position(*where, partition.rows_before(offset), is_exact=partition.is_exact)
