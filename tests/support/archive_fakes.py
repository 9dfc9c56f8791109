"""A stream for the tests of archiving: messages in memory with their own times, as Flight and the client show it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.archive.columns import SCHEMA
from penstock.client.records import Group, PartitionOffsets
from penstock.spark.described import Partition, Runs
from penstock.spark.ranges import OffsetRange


def rows_of(partition: str, messages: Sequence[tuple[int, int]]) -> pa.RecordBatch:
    """Return rows of offsets and times in milliseconds; the body is the offset."""
    rows = [
        {
            "offset": offset,
            "timestamp": time * 1000,
            "key": b"k" if offset % 2 else None,
            "exchange": "",
            "routing_key": partition,
            "body": b"%d" % offset,
            "properties": {"type": "t"} if offset % 3 == 0 else None,
            "headers": [{"key": "n", "value": b"%d" % offset}],
            "partition": partition,
        }
        for offset, time in messages
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


@dataclass
class FakeLog:
    """`Rows` and `Log` in one: the messages of one partition by offset, in batches of `batch_rows`."""

    name: str = "events"
    vhost: str = "/"
    id: int = 1
    messages: dict[int, int] = field(default_factory=dict)
    next: int = 1
    batch_rows: int = 7
    # Retention removes everything below, once so many batches were read.
    lost_below: tuple[int, int] | None = None
    # Messages that there ever were, and offsets of corrupt ones.
    given: int = 0
    corrupt: set[int] = field(default_factory=set)
    # The offsets that groups have stored.
    stored: dict[str, int] = field(default_factory=dict)

    def publish(self, times: Sequence[int]) -> None:
        for time in times:
            self.messages[self.next] = time
            self.next += 1
            self.given += 1

    def skip(self, count: int) -> None:
        """Skip offsets, as after a power failure."""
        self.next += count

    @property
    def first(self) -> int:
        return min(self.messages, default=self.next)

    def offsets(self, at: str | None = None, *, archive: bool = True) -> list[PartitionOffsets]:
        """Return offsets; without a clock all is old."""
        time = self.messages.get(self.first, 0)
        return [PartitionOffsets(self.name, self.first, self.next, len(self.messages), 0, time, 0, None, self.id)]

    def describe(self, streams: tuple[str, ...]) -> dict[str, Partition]:
        runs = Runs((offset, offset + 1) for offset in sorted(self.messages))
        rows, name = self.given, self.name
        return {name: Partition(streams[0], name, 0, str(self.id), self.first, self.next, rows, -1, runs)}

    def groups(self) -> list[Group]:
        return [Group(group, self.name, offset, 0, 0) for group, offset in self.stored.items()]

    def store(self, group: str, offset: int, partition: str | None = None) -> None:
        assert offset < self.next
        self.stored[group] = offset

    def trim(self, before: int, partition: str | None = None) -> int:
        self.messages = {offset: time for offset, time in self.messages.items() if offset >= before}
        return self.first

    def read(self, wanted: OffsetRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        at, count = wanted.start, 0
        while True:
            if self.lost_below is not None and count == self.lost_below[0]:
                self.trim(self.lost_below[1])
            there = [
                (offset, time)
                for offset, time in sorted(self.messages.items())
                if at <= offset < wanted.end and offset not in self.corrupt
            ]
            if not there:
                return
            batch = there[: self.batch_rows]
            at, count = batch[-1][0] + 1, count + 1
            yield rows_of(self.name, batch).select(list(columns))
