"""Streaming reads: the decisions of the driver for each micro-batch of a query.

An offset of Spark is the first unread offset of each partition of the stream. This module keeps no state of a query:
the Spark checkpoint does.
"""

from collections.abc import Iterator
from dataclasses import replace
from time import monotonic, sleep
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.spark.errors import DataLossError, OptionError
from penstock.spark.groups import GroupProgress
from penstock.spark.options import LATEST, ReadOptions
from penstock.spark.ranges import Offsets, admitted, bytes_to_rows, ranges_between, split
from penstock.spark.reading import RangePartition, offsets_of, read_range
from penstock.spark.wire import Described, Wire

__all__ = ["MicroBatchReader"]

# The longest time before an idle query sees a message. Spark itself asks every 11 ms.
POLL_PAUSE_SECONDS = 0.02


class MicroBatchReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        if options.ending is not None:
            raise OptionError("'endingOffsets' belongs to a batch; a stream query has no end")
        self._options = options
        self._schema = schema
        self._wire: Wire | None = None
        # The end of an AvailableNow run.
        self._target: Offsets | None = None
        self._progress: GroupProgress | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 (named by Spark)
        there = self._described()
        return offsets_of(self._connected(), self._options.stream, self._options.starting or LATEST, there)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._described().end

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """Return the end of the next batch. Wait a while when there is nothing new: Spark would ask again at once."""
        # This includes the last batch of an AvailableNow run, which Spark never commits.
        self._store(start)
        give_up = monotonic() + self._options.poll_timeout_ms / 1_000
        while True:
            there = self._described()
            end = self._reached(start, there, limit)
            if end != start or self._target is not None or monotonic() >= give_up:
                return end
            sleep(POLL_PAUSE_SECONDS)

    def reportLatestOffset(self) -> Offsets:  # noqa: N802
        return self._described().end

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        there = self._described()
        ranges = ranges_between(start, end, there.first, self._options.fail_on_data_loss, there.gone)
        # A split has the same number in every batch, so its dead letters have ascending sequences.
        return [
            RangePartition(each, f"{self._options.dead_letters}/{each.partition}/{each.number}of{each.count}")
            for each in split(ranges, self._options.min_partitions)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        named = replace(partition, origin=f"{query}/{partition.origin}")
        return read_range(named, self._options, self._schema)

    def commit(self, end: Offsets) -> None:
        self._store(end)

    def stop(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        if self._progress is not None:
            self._progress.close()
            self._progress = None

    def _reached(self, start: Offsets, there: Described, limit: ReadLimit) -> Offsets:
        end = there.end if self._target is None else self._target
        for partition, offset in start.items():
            if offset > there.end.get(partition, offset) and self._options.fail_on_data_loss:
                raise DataLossError(
                    f"partition '{partition}' ends at {there.end[partition]} and was read up to {offset}: it was "
                    "deleted and declared again; start with a new checkpoint, or set failOnDataLoss=false to wait for "
                    "that offset"
                )
        begun = {**{partition: there.first[partition] for partition in end}, **start}
        return admitted(begun, end, self._rows_max(there, limit))

    def _rows_max(self, there: Described, limit: ReadLimit) -> int:
        if isinstance(limit, ReadAllAvailable):
            return 2**63
        rows = 2**63 if self._options.max_offsets is None else self._options.max_offsets
        if self._options.max_bytes is None:
            return rows
        return min(rows, bytes_to_rows(self._options.max_bytes, there.bytes, there.rows))

    def _store(self, offsets: Offsets) -> None:
        if not self._options.group:
            return
        if self._progress is None:
            self._progress = GroupProgress(self._options)
        self._progress.store(offsets)

    def _described(self) -> Described:
        return self._connected().describe(self._options.stream)

    def _connected(self) -> Wire:
        """Return the connection, made at first use: Spark pickles this reader for its executors before."""
        if self._wire is None:
            self._wire = Wire(self._options.uri, self._options.retry_seconds)
        return self._wire

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_wire": None, "_progress": None}
