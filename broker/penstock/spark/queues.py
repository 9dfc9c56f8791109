"""Reads a queue: every micro-batch is a lease, so a repeated batch has the same rows.

An offset of Spark names the last lease that is read, its owner and the number of parts it is read in. A repeated batch
is therefore cut as before, whatever the options say after a restart. Offsets alone decide what is acknowledged, and
when.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.client.errors import ConnectionLostError, DeadlineError
from penstock.client.records import Lease, ReservedLease
from penstock.client.sync import Connection, connect
from penstock.spark.calls import PAUSE_SECONDS
from penstock.spark.columns import conformed, needed
from penstock.spark.decoding import Decoder
from penstock.spark.errors import DataLossError, OptionError
from penstock.spark.queue_options import QueueOptions
from penstock.spark.ranges import OffsetRange
from penstock.spark.wire import Wire

__all__ = ["LeasePartition", "QueueBatchReader", "QueueMicroBatchReader"]

T = TypeVar("T")
LeaseOffset: TypeAlias = dict[str, Any]

POLL_PAUSE_SECONDS = 0.02
CALL_SECONDS_MAX = 30.0
# More than a lease can hold: each lease's dead letters get a range of sequences of their own.
NUMBERS_OF_A_LEASE = 2**21


@dataclass
class LeasePartition(InputPartition):  # type: ignore[misc]
    """The part of a lease that one task reads; `origin` names the read, for messages that it publishes."""

    lease: int
    part: int
    parts: int
    origin: str = ""


class QueueMicroBatchReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(self, options: QueueOptions, schema: StructType) -> None:
        if options.lease is not None:
            raise OptionError("'lease' is for batches; a stream query reserves leases itself")
        self._options = options
        self._schema = schema
        self._desk: LeaseDesk | None = None
        # Messages that an AvailableNow run still has to read: those in the queue at its start, reserved or not.
        self._left: int | None = None
        self._given = 0

    def initialOffset(self) -> LeaseOffset:  # noqa: N802 (named by Spark)
        """Return the last lease that the owner acknowledged: messages it had reserved are delivered again."""
        return self._offset(self._at_desk().acked())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows = self._options.rows
        if rows.max_offsets is not None:
            return ReadMaxRows(rows.max_offsets)
        return ReadAllAvailable() if rows.max_bytes is None else ReadMaxBytes(rows.max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._left = self._at_desk().message_count()

    def latestOffset(self, start: LeaseOffset, limit: ReadLimit) -> LeaseOffset:  # noqa: N802
        """Acknowledge the leases before `start`, whose batch is committed, and reserve the next lease.

        Wait a while when the queue is empty: Spark would ask again at once.
        """
        self._check(start)
        # Acknowledge here and not in `commit`, which Spark never calls for the last batch of an AvailableNow run.
        settled_count = self._at_desk().ack(start["lease"])
        if start["lease"] > self._given:  # of an earlier run; those of this run were counted when reserved
            self._count_down(settled_count)
        give_up = monotonic() + self._options.rows.poll_timeout_ms / 1_000
        while self._left is None or self._left > 0:
            reserved = self._at_desk().reserve(start["lease"] + 1, self._limits(limit))
            if reserved.message_count > 0:
                self._count_down(reserved.message_count)
                self._given = reserved.lease
                return self._offset(reserved.lease)
            if self._left is not None or monotonic() >= give_up:
                break
            sleep(POLL_PAUSE_SECONDS)
        return start

    def partitions(self, start: LeaseOffset, end: LeaseOffset) -> list[InputPartition]:
        self._check(end)
        if start["lease"] > end["lease"]:
            raise DataLossError(
                f"owner '{end['owner']}' of queue '{self._options.queue}' has acknowledged lease {start['lease']}, and "
                f"the checkpoint is at {end['lease']}: another query goes by that name, or it was acknowledged manually"
            )
        parts = end["parts"]
        origin = f"{self._options.rows.dead_letters}/{end['owner']}"
        return [
            LeasePartition(lease, part, parts, f"{origin}/{part}of{parts}")
            for lease in range(start["lease"] + 1, end["lease"] + 1)
            for part in range(parts)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        return read_lease(partition, f"{query}/{partition.origin}", self._options, self._schema)

    def commit(self, end: LeaseOffset) -> None:
        """Do nothing; `latestOffset` acknowledges."""

    def stop(self) -> None:
        if self._desk is not None:
            self._desk.close()
            self._desk = None

    def _offset(self, lease: int) -> LeaseOffset:
        return {"owner": self._options.owner, "lease": lease, "parts": self._options.rows.min_partitions}

    def _check(self, offset: LeaseOffset) -> None:
        if offset["owner"] != self._options.owner:
            raise OptionError(
                f"the checkpoint was written by owner '{offset['owner']}', and 'owner' says '{self._options.owner}': "
                "use that name, or start with a new checkpoint"
            )

    def _limits(self, limit: ReadLimit) -> tuple[int, int]:
        """Return the limits in messages and bytes, 0 for no limit."""
        rows = self._options.rows
        if isinstance(limit, ReadAllAvailable):
            messages, bytes_ = 0, 0
        else:
            messages, bytes_ = rows.max_offsets or 0, rows.max_bytes or 0
        if self._left is not None:
            messages = min(messages or self._left, self._left)
        return messages, bytes_

    def _count_down(self, count: int) -> None:
        if self._left is not None:
            self._left -= count

    def _at_desk(self) -> "LeaseDesk":
        """Return the lease desk, made at first use: Spark pickles this reader for its executors before."""
        if self._desk is None:
            self._desk = LeaseDesk(self._options)
        return self._desk

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_desk": None}


class QueueBatchReader(DataSourceReader):  # type: ignore[misc]
    """Reader of one lease that the user reserved and will acknowledge.

    A batch may run any number of times and cannot tell whether a run was the last.
    """

    def __init__(self, options: QueueOptions, schema: StructType) -> None:
        rows = options.rows
        for name, value in (("maxOffsetsPerTrigger", rows.max_offsets), ("maxBytesPerTrigger", rows.max_bytes)):
            if value is not None:
                raise OptionError(f"'{name}' belongs to readStream; a batch reads one lease unchanged")
        if options.lease is None:
            raise OptionError(
                "a batch reads a lease of the queue: reserve one with the client's reserve_lease, name it with "
                ".option('lease', '1'), and acknowledge it when the rows are where they should be. readStream with "
                "trigger(availableNow=True) does all of that"
            )
        self._options = options
        self._schema = schema
        self._lease = options.lease

    def partitions(self) -> list[InputPartition]:
        parts = self._options.rows.min_partitions
        origin = f"{self._options.rows.dead_letters}/{self._options.queue}/{self._options.owner}"
        return [LeasePartition(self._lease, part, parts, f"{origin}/{part}of{parts}") for part in range(parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes its own partition when there is none.
        if not isinstance(partition, LeasePartition):
            return iter(())
        return read_lease(partition, partition.origin, self._options, self._schema)


def read_lease(
    partition: LeasePartition, origin: str, options: QueueOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Yield record batches in Spark's schema. Runs in an executor."""
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    columns = needed(arrow_schema.names, options.rows)
    ticket = {"queue": options.queue, "owner": options.owner, "lease": partition.lease}
    part = {"part": partition.part, "parts": partition.parts}
    first = partition.lease * NUMBERS_OF_A_LEASE
    numbers = OffsetRange(options.queue, first, first + NUMBERS_OF_A_LEASE)
    decoding = options.rows.decoding
    with (
        Wire(options.rows.uri, options.rows.retry_seconds) as wire,
        Decoder(wire, decoding, numbers, origin, is_lease=True) as decoder,
    ):
        for batch in wire.read_lease({**ticket, **part}, columns):
            rows = decoder.decode(batch, arrow_schema)
            if rows.num_rows:
                yield conformed(rows, arrow_schema)


class LeaseDesk:
    """The driver's side of leases: it reserves and acknowledges.

    Both are idempotent, so they are retried while the broker cannot be reached.
    """

    def __init__(self, options: QueueOptions) -> None:
        self._options = options
        self._connection: Connection | None = None

    def acked(self) -> int:
        """Return the highest lease that the owner has acknowledged."""
        owner = self._options.owner
        found = self._tried(lambda connection: connection.admin.list_leases(self._options.queue, owner))
        return next((each.acked for each in found.owners), 0)

    def message_count(self) -> int:
        """Return the number of messages that are ready or reserved by the owner."""
        owner = self._options.owner
        found = self._tried(lambda connection: connection.admin.list_leases(self._options.queue, owner))
        return found.ready_count + sum(lease.message_count for each in found.owners for lease in each.leases)

    def ack(self, up_to: int) -> int:
        """Acknowledge leases; return the number of messages that were settled."""
        queue, owner = self._options.queue, self._options.owner
        return self._tried(lambda connection: connection.ack_leases(queue, owner, up_to))

    def reserve(self, lease: int, limits: tuple[int, int]) -> Lease:
        """Reserve a lease; one without messages counts as none."""
        queue, owner = self._options.queue, self._options.owner

        def reserve(connection: Connection) -> ReservedLease:
            return connection.reserve_lease(queue, owner, lease, *limits)

        return self._tried(reserve).lease

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _tried(self, call: Callable[[Connection], T]) -> T:
        """Repeat a call from its first failure on, also one that a vanished broker does not answer."""
        give_up: float | None = None
        while True:
            try:
                if self._connection is None:
                    self._connection = connect(self._options.rows.uri, native=False, timeout=CALL_SECONDS_MAX)
                return call(self._connection)
            except (ConnectionLostError, DeadlineError):
                self.close()
                give_up = give_up or monotonic() + self._options.rows.retry_seconds
                if monotonic() >= give_up:
                    raise
                sleep(PAUSE_SECONDS)
