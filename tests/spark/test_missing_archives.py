"""Reads that begin in an archive which is not there, and streams that lack partitions, as Spark calls the readers."""

import logging
from typing import Any

import pytest
from pyspark.sql.types import StructType

from penstock.spark.errors import DataLossError
from penstock.spark.source import PenstockSource
from penstock.spark.streaming import MicroBatchReader
from support.fake_flight import FIRST_TIME_MS, FakeFlight

BODIES = StructType().add("offset", "long").add("body", "binary")


def source(server: FakeFlight, **options: str) -> PenstockSource:
    chosen = {} if "assign" in options else {"stream": "events"}
    return PenstockSource({"uri": server.uri, "pollTimeoutMs": "0", **chosen, **options})


def micro(server: FakeFlight, **options: str) -> MicroBatchReader:
    return source(server, **options).streamReader(BODIES)


def read(reader: Any, partitions: list[Any]) -> list[bytes]:
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    return [body for batch in batches for body in batch["body"].to_pylist()]


@pytest.fixture
def events(server: FakeFlight) -> FakeFlight:
    server.declare("events")
    server.publish("events", *(b"%d" % number for number in range(10)))
    return server


ARCHIVE_ERROR = "archive 'events' in vhost '/' cannot be read: it is not mounted"


def test_a_read_that_begins_in_an_archive_which_is_not_there_fails_or_goes_on_with_a_count(
    events: FakeFlight, caplog: pytest.LogCaptureFixture
) -> None:
    events.retain("events", 6)
    events.archive_errors["events"] = ARCHIVE_ERROR

    with pytest.raises(DataLossError, match=r"up to 5 messages before offset 6 are missing: .*not mounted"):
        source(events).reader(BODIES).partitions()
    for options in ({"startingOffsets": "earliest"}, {"startingTimestamp": str(FIRST_TIME_MS)}):
        with pytest.raises(DataLossError, match="not mounted"):
            micro(events, **options).initialOffset()
    with pytest.raises(DataLossError, match="not mounted"):
        source(events, startingOffsets="latest", endingTimestamp=str(FIRST_TIME_MS)).reader(BODIES).partitions()
    at_end = micro(events).initialOffset()
    assert at_end["partitions"]["events"]["next"] == 11
    with caplog.at_level(logging.WARNING, "penstock"):
        reader = source(events, failOnDataLoss="false").reader(BODIES)
        assert read(reader, reader.partitions()) == [b"%d" % number for number in range(5, 10)]

    assert any("up to 5 messages of partition 'events' are passed over" in text for text in caplog.messages)


def test_a_stream_that_lacks_a_partition_is_not_read_as_if_it_were_whole(server: FakeFlight) -> None:
    server.declare("events", partitions=3)
    server.publish("events-0", b"0")
    server.publish("events-2", b"2")
    server.streams["events"].remove("events-1")
    server.declared["events"] = 3

    for refused in (source(server).reader(BODIES).partitions, micro(server, startingOffsets="earliest").initialOffset):
        with pytest.raises(DataLossError, match="lacks 1 of the partitions"):
            refused()
    allowed = source(server, failOnDataLoss="false").reader(BODIES)
    assert read(allowed, allowed.partitions()) == [b"0", b"2"]
    assigned = source(server, assign='{"events": [0]}').reader(BODIES)
    assert read(assigned, assigned.partitions()) == [b"0"]


def test_rows_that_are_passed_over_are_counted(events: FakeFlight, caplog: pytest.LogCaptureFixture) -> None:
    reader = micro(events, startingOffsets="earliest", failOnDataLoss="false")
    start = reader.initialOffset()
    events.retain("events", 5)

    with caplog.at_level(logging.WARNING, "penstock"):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert len(read(reader, reader.partitions(start, end))) == 6

    assert caplog.messages == ["4 messages of partition 'events' are missing and passed over"]
