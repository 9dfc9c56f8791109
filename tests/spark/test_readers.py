"""The reader classes as Spark calls them, without a session, against a broker in memory."""

import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

from penstock.spark.errors import DataLossError, OptionError
from penstock.spark.losses import checked
from penstock.spark.ranges import OffsetRange
from penstock.spark.source import PenstockSource
from penstock.spark.streaming import MicroBatchReader
from penstock.spark.wire import Described
from support.fake_flight import FIRST_TIME_MS, FakeFlight

BODIES = StructType().add("offset", "long").add("body", "binary")


def source(server: FakeFlight, **options: str) -> PenstockSource:
    return PenstockSource({"uri": server.uri, "stream": "events", "pollTimeoutMs": "0", **options})


def micro(server: FakeFlight, **options: str) -> MicroBatchReader:
    return source(server, **options).streamReader(BODIES)


def read(reader: Any, partitions: list[Any]) -> list[bytes]:
    tables = [pa.Table.from_batches(reader.read(partition), None) for partition in map(copied, partitions)]
    return [body for table in tables for body in table["body"].to_pylist()]


def copied(partition: Any) -> Any:
    """Return the partition as it arrives at an executor."""
    return pickle.loads(pickle.dumps(partition))


@pytest.fixture
def events(server: FakeFlight) -> FakeFlight:
    server.declare("events")
    server.publish("events", *(b"%d" % number for number in range(10)))
    return server


def test_a_batch_reads_what_is_there_in_as_many_splits_as_asked(events: FakeFlight) -> None:
    reader = source(events, minPartitions="3").reader(BODIES)

    partitions = reader.partitions()

    assert len(partitions) == 3
    assert read(copied(reader), partitions) == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize(
    ("options", "bodies"),
    [
        ({"startingOffsets": '{"events": 9}'}, [b"8", b"9"]),
        ({"endingOffsets": '{"events": 3}'}, [b"0", b"1"]),
        ({"endingOffsets": '{"events": 300}', "startingOffsets": '{"events": 10}'}, [b"9"]),
        ({"startingTimestamp": str(FIRST_TIME_MS + 8)}, [b"8", b"9"]),
        ({"endingTimestamp": str(FIRST_TIME_MS + 2)}, [b"0", b"1"]),
        ({"startingOffsetsByTimestamp": f'{{"events": {FIRST_TIME_MS + 9}}}'}, [b"9"]),
    ],
)
def test_a_batch_begins_and_ends_where_it_is_told(
    events: FakeFlight, options: dict[str, str], bodies: list[bytes]
) -> None:
    reader = source(events, **options).reader(BODIES)

    assert read(reader, reader.partitions()) == bodies


def test_an_empty_batch_has_nothing_to_read(events: FakeFlight) -> None:
    reader = source(events, startingOffsets="latest").reader(BODIES)

    assert reader.partitions() == []
    assert list(reader.read(None)) == []


def test_a_query_begins_at_the_end_unless_told_otherwise(events: FakeFlight) -> None:
    assert micro(events).initialOffset() == {"events": 11}
    assert micro(events, startingOffsets="earliest").initialOffset() == {"events": 1}


def test_micro_batches_follow_each_other_without_gap_or_overlap(events: FakeFlight) -> None:
    reader = micro(events, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)

    at, bodies = reader.initialOffset(), []
    while (after := reader.latestOffset(at, limit)) != at:
        bodies.append(read(copied(reader), reader.partitions(at, after)))
        at = after

    assert bodies == [[b"0", b"1", b"2", b"3"], [b"4", b"5", b"6", b"7"], [b"8", b"9"]]
    assert reader.latestOffset({"events": 1}, ReadAllAvailable()) == {"events": 11}
    reader.stop()


def test_bytes_limit_a_trigger_by_the_stream_s_mean(events: FakeFlight) -> None:
    reader = micro(events, maxBytesPerTrigger="3")

    assert reader.getDefaultReadLimit() == ReadMaxBytes(3)
    assert reader.latestOffset({"events": 1}, ReadMaxBytes(3)) == {"events": 4}


def test_a_run_over_what_is_available_ends_where_the_stream_did(events: FakeFlight) -> None:
    reader = micro(events)
    reader.prepareForTriggerAvailableNow()
    events.publish("events", b"later")

    end = reader.latestOffset({"events": 1}, reader.getDefaultReadLimit())

    assert end == {"events": 11}
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    assert reader.reportLatestOffset() == {"events": 12}


def test_an_idle_query_waits_for_what_comes(events: FakeFlight) -> None:
    reader = source(events, pollTimeoutMs="60000").streamReader(BODIES)
    events.publish("events", b"new")

    assert reader.latestOffset({"events": 11}, ReadAllAvailable()) == {"events": 12}


def test_offsets_that_retention_took_fail_the_query_or_are_passed_over(events: FakeFlight) -> None:
    events.retain("events", 5)

    with pytest.raises(DataLossError, match="offsets 1 to 4"):
        micro(events).partitions({"events": 1}, {"events": 11})
    patient = micro(events, failOnDataLoss="false")
    assert read(patient, patient.partitions({"events": 1}, {"events": 7})) == [b"4", b"5"]


def test_a_stream_that_was_declared_again_fails_the_query(events: FakeFlight) -> None:
    events.declare("events")

    with pytest.raises(DataLossError, match="declared again"):
        micro(events).latestOffset({"events": 11}, ReadAllAvailable())
    assert micro(events, failOnDataLoss="false").latestOffset({"events": 11}, ReadAllAvailable()) == {"events": 11}


def test_options_of_the_other_kind_of_reading_are_refused(events: FakeFlight) -> None:
    with pytest.raises(OptionError, match="belongs to readStream"):
        source(events, maxOffsetsPerTrigger="5").reader(BODIES)
    with pytest.raises(OptionError, match="belongs to a batch"):
        micro(events, endingOffsets="latest")


def test_two_decodings_in_one_query_publish_their_bad_records_under_two_names(events: FakeFlight) -> None:
    """They shared one, and the broker took the bad record of the second for a repetition."""
    events.declare("bad")
    options = {"parsed": "json", "deadLetterStream": "bad"}
    readers = [micro(events, **options, parsedSchema=schema) for schema in ("a INT", "b INT", "a INT")]

    first, second, again = ({each.origin for each in reader.partitions({}, {"events": 11})} for reader in readers)

    assert first == again
    assert not first & second


def test_each_batch_read_publishes_its_bad_records_and_a_repeated_task_of_it_none(events: FakeFlight) -> None:
    """Another user's read failed as its name belonged to the first, and a stream declared again had none published."""
    events.declare("bad")
    schema = StructType().add("offset", "long").add("value", StructType().add("a", "integer"))
    options = {"parsed": "json", "parsedSchema": "a INT", "deadLetterStream": "bad"}
    for count in (10, 20):
        reader = source(events, **options).reader(schema)
        partitions = reader.partitions()
        for partition in partitions + partitions:
            assert list(reader.read(copied(partition))) == []

        assert len(events.bodies("bad")) == count


def test_rows_are_filtered_by_key_before_spark_sees_them(events: FakeFlight) -> None:
    events.publish("events", b"x", b"y", key=b"anna")
    reader = source(events, keyIs="anna").reader(BODIES)

    assert read(reader, reader.partitions()) == [b"x", b"y"]


@pytest.mark.parametrize("query", ["batch", "stream"])
def test_a_task_whose_offsets_retention_removed_after_planning_says_so_unless_told_to_continue(
    events: FakeFlight, query: str
) -> None:
    def planned(**options: str) -> tuple[Any, list[Any]]:
        if query == "batch":
            batch = source(events, minPartitions="2", **options).reader(BODIES)
            return batch, batch.partitions()
        stream = source(events, minPartitions="2", **options).streamReader(BODIES)
        return stream, stream.partitions({"events": 1}, {"events": 11})

    failing, going_on = planned(), planned(failOnDataLoss="false")
    events.retain("events", 8)

    for partition in failing[1]:
        with pytest.raises(DataLossError, match="were removed by retention"):
            list(failing[0].read(copied(partition)))
    batches = [batch for each in going_on[1] for batch in going_on[0].read(copied(each))]
    assert [body for batch in batches for body in batch["body"].to_pylist()] == [b"7", b"8", b"9"]


def test_a_task_says_so_when_retention_removes_offsets_between_two_calls_of_its_read(server: FakeFlight) -> None:
    server.declare("events")
    server.publish("events", *([b"x"] * 3_000))
    reader = source(server).reader(BODIES)
    server.break_get_after = 1_000
    found = reader.read(reader.partitions()[0])
    assert next(found).num_rows == 1_000
    server.retain("events", 2_500)

    with pytest.raises(DataLossError, match="were removed by retention"):
        list(found)


def test_offsets_that_retention_removed_within_a_batch_are_a_loss() -> None:
    class Stream:
        def describe(self, stream: str) -> Described:
            return Described({"events": 4}, {"events": 9}, 5, 5)

    batch = pa.record_batch({"offset": pa.array([1, 4, 5, 8], pa.int64())})

    with pytest.raises(DataLossError, match="offsets 2 to 3 of 'events' were removed by retention"):
        list(checked(iter([batch]), OffsetRange("events", 1, 9), "events", Stream()))


def test_a_task_whose_stream_was_declared_again_after_planning_says_so(events: FakeFlight) -> None:
    reader = source(events).reader(BODIES)
    partitions = reader.partitions()
    events.declare("events")
    events.publish("events", b"new")

    with pytest.raises(DataLossError, match="partition 'events' ends at 2, and this task reads up to 11"):
        list(reader.read(copied(partitions[0])))
