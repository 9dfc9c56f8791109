"""The reader classes as Spark calls them, without a session, against a broker in memory."""

import json
import pickle
import threading
from time import monotonic
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

from penstock.spark.errors import DataLossError, NotFoundError, OptionError
from penstock.spark.options import parse_read_options
from penstock.spark.source import PenstockSource
from penstock.spark.streaming import MicroBatchReader
from support.fake_flight import FIRST_TIME_MS, FakeFlight

BODIES = StructType().add("offset", "long").add("body", "binary")


def source(server: FakeFlight, **options: str) -> PenstockSource:
    chosen = {} if {"subscribe", "subscribePattern", "assign"} & options.keys() else {"stream": "events"}
    return PenstockSource({"uri": server.uri, "pollTimeoutMs": "0", **chosen, **options})


def micro(server: FakeFlight, **options: str) -> MicroBatchReader:
    return source(server, **options).streamReader(BODIES)


def nexts(offset: dict[str, Any]) -> dict[str, int]:
    """Return the first unread offset of each partition."""
    return {name: each["next"] for name, each in offset["partitions"].items()}


def after(reader: MicroBatchReader, start: Any) -> Any:
    """Return the end of the next batch as the Spark checkpoint returns it."""
    return json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))


class Clock:
    """A clock that stands still, also where it is copied to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def following(reader: MicroBatchReader, at: Any) -> list[list[bytes]]:
    """Return the bodies of each batch that follows."""
    found = []
    while (end := after(reader, at)) != at:
        found.append(read(copied(reader), reader.partitions(at, end)))
        at = end
    return found


def read(reader: Any, partitions: list[Any]) -> list[bytes]:
    batches = [batch for partition in map(copied, partitions) for batch in reader.read(partition)]
    return [body for batch in batches for body in batch["body"].to_pylist()]


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
    assert nexts(micro(events).initialOffset()) == {"events": 11}
    assert micro(events, startingOffsets="earliest").initialOffset() == {
        "version": 2,
        "partitions": {"events": {"stream": "events", "id": "id-1", "next": 1, "rows": 0}},
    }


def test_micro_batches_follow_each_other_without_gap_or_overlap(events: FakeFlight) -> None:
    reader = micro(events, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    start = reader.initialOffset()
    assert reader.getDefaultReadLimit() == ReadMaxRows(4)

    assert following(reader, start) == [[b"0", b"1", b"2", b"3"], [b"4", b"5", b"6", b"7"], [b"8", b"9"]]
    assert nexts(reader.latestOffset(start, ReadAllAvailable())) == {"events": 11}
    reader.stop()


def test_bytes_limit_a_trigger_by_the_stream_s_mean(events: FakeFlight) -> None:
    reader = micro(events, maxBytesPerTrigger="3", startingOffsets="earliest")

    assert reader.getDefaultReadLimit() == ReadMaxBytes(3)
    assert nexts(after(reader, reader.initialOffset())) == {"events": 4}


def test_a_run_over_what_is_available_ends_where_the_stream_did(events: FakeFlight) -> None:
    reader = micro(events, startingOffsets="earliest", minOffsetsPerTrigger="100")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    events.publish("events", b"later")

    end = after(reader, start)

    assert nexts(end) == {"events": 11}
    assert after(reader, end) == end
    assert nexts(reader.reportLatestOffset()) == {"events": 12}


def test_an_idle_query_waits_at_the_broker_with_one_call(events: FakeFlight) -> None:
    """It asked 50 times a second."""
    reader = micro(events, pollTimeoutMs="300")
    start = reader.initialOffset()
    events.asked.clear()
    for _ in range(3):
        assert after(reader, start) == start
        reader.reportLatestOffset()

    assert len(events.asked) == 4
    assert events.asked[-1] == {"vhost": "/", "streams": ["events"], "ends": {"events": 11}, "wait_ms": 300}


def test_an_idle_query_sees_a_message_that_comes_while_it_waits(events: FakeFlight) -> None:
    reader = micro(events, pollTimeoutMs="60000")
    start = reader.initialOffset()
    threading.Timer(0.2, lambda: events.publish("events", b"new")).start()

    assert nexts(after(reader, start)) == {"events": 12}


def test_an_idle_query_is_not_woken_for_ever_by_numbers_that_were_skipped(events: FakeFlight) -> None:
    reader = micro(events, pollTimeoutMs="200")
    start = reader.initialOffset()
    events.skip("events")
    events.asked.clear()

    assert [after(reader, start) for _ in range(2)] == [start, start]
    assert len(events.asked) <= 4


def test_a_batch_waits_for_a_least_number_of_rows_but_not_for_ever(events: FakeFlight) -> None:
    clock = Clock()
    options = {"uri": events.uri, "stream": "events", "pollTimeoutMs": "0", "startingOffsets": "earliest"}
    limits = {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "1m"}
    reader = MicroBatchReader(parse_read_options({**options, **limits}), BODIES, clock)
    first = after(reader, reader.initialOffset())
    assert nexts(first) == {"events": 11}

    events.publish("events", b"10", b"11", b"12", b"13")
    assert after(reader, first) == first
    events.publish("events", b"14")
    second = after(reader, first)
    assert nexts(second) == {"events": 16}
    events.publish("events", b"15")
    clock.now += 59
    assert after(reader, second) == second
    clock.now += 1
    assert nexts(after(reader, second)) == {"events": 17}


def test_a_batch_is_delayed_no_longer_than_it_may_be(events: FakeFlight) -> None:
    """It was delayed by up to `pollTimeoutMs` more."""
    limits = {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "400ms", "pollTimeoutMs": "20000"}
    reader = micro(events, startingOffsets="earliest", **limits)
    first = after(reader, reader.initialOffset())
    events.publish("events", b"10")
    events.asked.clear()
    begun = monotonic()

    assert nexts(after(reader, first)) == {"events": 12}

    assert monotonic() - begun < 10
    assert all(each.get("wait_ms", 0) <= 400 for each in events.asked)


def test_rows_that_retention_took_fail_the_query_or_are_passed_over(events: FakeFlight) -> None:
    reader = micro(events, startingOffsets="earliest")
    start = reader.initialOffset()
    events.retain("events", 5)

    with pytest.raises(
        DataLossError, match=r"^retention removed 4 messages of partition 'events' between offsets 1 and 11"
    ):
        after(reader, start)
    patient = micro(events, failOnDataLoss="false")
    assert following(patient, start) == [[b"4", b"5", b"6", b"7", b"8", b"9"]]


def test_a_stream_that_was_declared_again_fails_the_query_or_is_read_from_its_first_row(events: FakeFlight) -> None:
    reader = micro(events)
    start = reader.initialOffset()
    events.declare("events")
    events.publish("events", *(b"new %d" % number for number in range(30)))

    with pytest.raises(DataLossError, match="declared again"):
        after(reader, start)
    patient = micro(events, failOnDataLoss="false")
    (bodies,) = following(patient, start)
    assert (len(bodies), bodies[0]) == (30, b"new 0")


def test_a_query_goes_on_without_a_stream_that_was_deleted_if_it_may(events: FakeFlight) -> None:
    events.declare("orders")
    events.publish("orders", b"a", b"b")
    options = {"subscribe": "events,orders", "startingOffsets": "earliest"}
    reader = micro(events, failOnDataLoss="false", **options)
    at = after(reader, reader.initialOffset())
    orders, events.streams["orders"] = events.streams["orders"], []
    events.publish("events", b"10")
    assert following(reader, at) == [[b"10"]]

    strict = micro(events, **options)
    with pytest.raises(NotFoundError, match="stream 'orders'"):
        after(strict, at)
    restarted = micro(events, failOnDataLoss="false", **options)
    without = after(restarted, at)
    assert read(restarted, restarted.partitions(at, without)) == [b"10"]
    # It was away for a while only: what was read of it is not read again.
    events.streams["orders"] = orders
    events.publish("orders", b"c")
    assert following(micro(events, failOnDataLoss="false", **options), without) == [[b"c"]]
    assert after(micro(events, failOnDataLoss="false", **options), at) != at


def test_a_first_start_needs_all_the_streams(events: FakeFlight) -> None:
    with pytest.raises(NotFoundError, match="stream 'oders'"):
        micro(events, subscribe="events,oders", failOnDataLoss="false").initialOffset()
    with pytest.raises(NotFoundError, match="stream 'oders'"):
        source(events, subscribe="events,oders", failOnDataLoss="false").reader(BODIES).partitions()


def test_a_task_whose_stream_was_deleted_after_planning_ends_if_it_may(
    events: FakeFlight, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reader = micro(events, startingOffsets="earliest", failOnDataLoss="false")
    start = reader.initialOffset()
    planned = reader.partitions(start, after(reader, start))

    def missing(*_: Any) -> None:
        raise pa.ArrowKeyError("stream 'events' in vhost '/' not found")

    monkeypatch.setattr(events, "do_get", missing)
    assert read(copied(reader), planned) == []
    assert "partition 'events'" in caplog.text
    with pytest.raises(NotFoundError):
        read(micro(events), planned)


def test_a_checkpoint_of_another_stream_is_refused(events: FakeFlight) -> None:
    start = micro(events).initialOffset()
    events.declare("payments")

    with pytest.raises(DataLossError, match="of stream 'events', which is not there or not chosen by this query"):
        after(micro(events, subscribe="payments"), start)


def test_a_checkpoint_of_another_format_is_refused(events: FakeFlight) -> None:
    with pytest.raises(OptionError, match="the Spark checkpoint has offsets with no version"):
        after(micro(events), {"events": 5})
    with pytest.raises(OptionError, match="the Spark checkpoint has offsets with no version"):
        micro(events).partitions({"events": 5}, {"events": 7})


def cut(partitions: list[Any]) -> list[tuple[int, int]]:
    return [(each.wanted.start, each.wanted.end) for each in partitions]


def test_a_repeated_batch_is_cut_as_the_first_time_whatever_the_options_and_the_stream_are(events: FakeFlight) -> None:
    """Another number of partitions gave rows twice and lost others, as the sink numbers rows by task."""
    first = micro(events, startingOffsets="earliest", minPartitions="2")
    start = first.initialOffset()
    end = after(first, start)
    planned = cut(first.partitions(start, end))
    assert planned == [(1, 6), (6, 11)]
    events.publish("events", *([b"x"] * 50))

    again = micro(events, minPartitions="5", maxOffsetsPerTrigger="3", maxRecordsPerPartition="1")
    assert cut(again.partitions(start, end)) == planned
    events.retain("events", 9)
    with pytest.raises(DataLossError, match="retention removed 5 of 5 messages"):
        again.partitions(start, end)
    patient = micro(events, minPartitions="7", failOnDataLoss="false")
    assert cut(patient.partitions(start, end)) == planned
    assert read(patient, patient.partitions(start, end)) == [b"8", b"9"]


def test_a_repeated_first_batch_does_not_begin_where_the_stream_ends_by_then(events: FakeFlight) -> None:
    """Spark asks for the initial offset again when the driver died in its first batch, and it had moved."""
    first = micro(events)
    start = first.initialOffset()
    events.publish("events", b"10", b"11")
    end = after(first, start)
    events.publish("events", b"12")

    again = micro(events)

    assert read(again, again.partitions(again.initialOffset(), end)) == [b"10", b"11"]


def test_a_repeated_batch_of_a_stream_that_was_declared_again_has_its_tasks_and_no_rows(events: FakeFlight) -> None:
    first = micro(events, startingOffsets="earliest", minPartitions="2")
    start = first.initialOffset()
    end = after(first, start)
    events.declare("events")
    events.publish("events", *([b"new"] * 20))

    with pytest.raises(DataLossError, match="declared again"):
        micro(events).partitions(start, end)
    patient = micro(events, failOnDataLoss="false")
    planned = patient.partitions(start, end)
    assert (len(planned), read(patient, planned)) == (2, [])
    events.delete("events")
    assert len(patient.partitions(start, end)) == 2


def test_several_streams_are_read_together_and_each_task_knows_its_own(events: FakeFlight) -> None:
    events.declare("clicks", partitions=2)
    events.publish("clicks-1", b"c")
    reader = micro(events, subscribe="events,clicks", startingOffsets='{"events": 9, "clicks": {"0": -2, "1": 1}}')
    start = reader.initialOffset()

    planned = reader.partitions(start, after(reader, start))

    assert [(each.wanted.stream, each.wanted.partition_number) for each in planned] == [("clicks", 1), ("events", 0)]
    assert read(reader, planned) == [b"c", b"8", b"9"]
    batch = source(events, assign='{"clicks": [1]}').reader(BODIES)
    assert read(batch, batch.partitions()) == [b"c"]


def test_a_pattern_reads_a_new_stream_from_its_first_row(events: FakeFlight) -> None:
    clock = Clock()
    options = {"uri": events.uri, "subscribePattern": "ev.*", "pollTimeoutMs": "0"}
    reader = MicroBatchReader(parse_read_options(options), BODIES, clock)
    start = reader.initialOffset()
    events.declare("evenings", partitions=2)
    events.publish("evenings-1", b"a", b"b")

    assert after(reader, start) == start
    clock.now += 10
    assert following(reader, start) == [[b"a", b"b"]]
    events.delete("evenings")
    end = after(micro(events, subscribePattern="ev.*"), start)
    assert end == start


def test_rows_behind_skipped_numbers_come_in_one_batch_and_in_all_tasks(events: FakeFlight) -> None:
    events.skip("events")
    events.publish("events", *(b"%d" % number for number in range(10, 20)))
    reader = micro(events, startingOffsets='{"events": 9}', maxOffsetsPerTrigger="6", minPartitions="3")

    start = reader.initialOffset()
    first = after(reader, start)

    assert [each.wanted.rows for each in reader.partitions(start, first)] == [2, 2, 2]
    assert following(reader, start) == [
        [b"8", b"9", b"10", b"11", b"12", b"13"],
        [b"14", b"15", b"16", b"17", b"18", b"19"],
    ]
    latest = reader.reportLatestOffset()["partitions"]["events"]
    assert latest["rows"] - first["partitions"]["events"]["rows"] == 6


def test_a_broker_that_lost_rows_which_were_read_is_followed(events: FakeFlight) -> None:
    reader = micro(events, startingOffsets="earliest")
    start = reader.initialOffset()
    at = after(reader, start)
    events.lose_tail("events", 4)

    assert after(reader, at) == at
    events.publish("events", b"new", b"newer")
    assert following(reader, at) == [[b"new", b"newer"]]


def test_options_of_the_other_kind_of_reading_are_refused(events: FakeFlight) -> None:
    with pytest.raises(OptionError, match="'group' belongs to readStream"):
        source(events, group="readers").reader(BODIES)
    with pytest.raises(OptionError, match="belongs to readStream"):
        source(events, maxOffsetsPerTrigger="5").reader(BODIES)
    with pytest.raises(OptionError, match="belongs to a batch"):
        micro(events, endingOffsets="latest")


def test_two_decodings_in_one_query_publish_their_bad_records_under_two_names(events: FakeFlight) -> None:
    """They shared one, and the broker took the bad record of the second for a repetition."""
    events.declare("bad")
    options = {"parsed": "json", "deadLetterStream": "bad"}
    start = micro(events, startingOffsets="earliest").initialOffset()
    schemas = [(name, StructType().add("value", StructType().add(name, "integer"))) for name in ("a", "b", "a")]
    readers = [source(events, **options, parsedSchema=f"{name} INT").streamReader(kind) for name, kind in schemas]

    first, second, again = (
        {each.origin for each in reader.partitions(start, after(reader, start))} for reader in readers
    )

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
        stream = micro(events, minPartitions="2", startingOffsets="earliest", **options)
        start = stream.initialOffset()
        return stream, stream.partitions(start, after(stream, start))

    failing, going_on = planned(), planned(failOnDataLoss="false")
    events.retain("events", 8)

    for partition in failing[1]:
        with pytest.raises(DataLossError, match="retention removed"):
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

    with pytest.raises(DataLossError, match="retention removed"):
        list(found)


def test_numbers_that_were_skipped_are_no_loss_and_corrupt_messages_are(events: FakeFlight) -> None:
    """Corrupt messages were left out of the rows without a word."""
    events.skip("events")
    events.publish("events", b"10", b"11")
    reader = source(events).reader(BODIES)
    assert len(read(reader, reader.partitions())) == 12

    for offset in (3, 12 + 2**32):
        events.corrupt("events", offset)
        with pytest.raises(DataLossError, match="dropped 1 message of partition 'events' between offsets"):
            read(reader, reader.partitions())
        del events.rows["events"][offset]
        events.given["events"] -= 1
    lenient = source(events, failOnDataLoss="false").reader(BODIES)
    assert len(read(lenient, lenient.partitions())) == 10


def test_a_task_whose_stream_was_declared_again_after_planning_says_so(events: FakeFlight) -> None:
    reader = source(events).reader(BODIES)
    partitions = reader.partitions()
    events.declare("events")
    for _ in range(2):
        events.publish("events", *([b"new"] * 10))
        with pytest.raises(DataLossError, match="partition 'events' was deleted and declared again"):
            list(reader.read(copied(partitions[0])))


def test_rows_of_a_stream_that_was_declared_again_after_planning_are_read_once_if_the_query_goes_on(
    events: FakeFlight,
) -> None:
    reader = micro(events, startingOffsets="earliest", failOnDataLoss="false")
    start = reader.initialOffset()
    end = after(reader, start)
    planned = reader.partitions(start, end)
    events.declare("events")
    events.publish("events", b"new")

    assert read(copied(reader), planned) == []
    assert following(reader, end) == [[b"new"]]


def test_a_stream_that_is_declared_again_during_a_read_fails_the_task_also_if_the_query_goes_on(
    events: FakeFlight, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = micro(events, startingOffsets="earliest", failOnDataLoss="false")
    start = reader.initialOffset()
    planned = reader.partitions(start, after(reader, start))
    do_get = events.do_get

    def declared_again(*args: Any) -> Any:
        events.declare("events")
        events.publish("events", b"new")
        return do_get(*args)

    monkeypatch.setattr(events, "do_get", declared_again)
    with pytest.raises(DataLossError, match="was declared again while a task read it"):
        read(copied(reader), planned)
    assert read(copied(reader), planned) == []


def test_a_start_behind_the_end_is_refused(events: FakeFlight) -> None:
    with pytest.raises(OptionError, match="begins at offset 12 of partition 'events', which ends at 11"):
        micro(events, startingOffsets='{"events": 12}').initialOffset()
    with pytest.raises(OptionError, match="begins at offset 12"):
        source(events, startingOffsets='{"events": 12}').reader(BODIES).partitions()


def test_a_time_behind_the_last_message_is_an_error_unless_told_to_begin_at_the_end(events: FakeFlight) -> None:
    late = {"startingTimestamp": str(FIRST_TIME_MS + 99)}

    with pytest.raises(OptionError, match="has no message stored at"):
        micro(events, **late).initialOffset()
    latest = micro(events, **late, startingOffsetsByTimestampStrategy="latest")
    assert nexts(latest.initialOffset()) == {"events": 11}
    ended = source(events, endingTimestamp=str(FIRST_TIME_MS + 99)).reader(BODIES)
    assert len(read(ended, ended.partitions())) == 10


def test_a_task_has_no_more_rows_than_it_may(events: FakeFlight) -> None:
    reader = source(events, maxRecordsPerPartition="3").reader(BODIES)

    assert [each.wanted.rows for each in reader.partitions()] == [2, 3, 2, 3]
    events.publish("events", *([b"x"] * 5_000))
    with pytest.raises(OptionError, match="'maxRecordsPerPartition' makes 5010 tasks, and a read has at most 4096"):
        source(events, maxRecordsPerPartition="1").reader(BODIES).partitions()


def test_a_least_number_of_tasks_is_never_refused_for_the_sizes_of_the_partitions(events: FakeFlight) -> None:
    """The error named `maxRecordsPerPartition`, an option that was not set."""
    events.declare("large")
    events.publish("events", *([b""] * 9_400))
    events.publish("large", *([b"x"] * 600))

    def described(wanted: dict[str, Any]) -> list[dict[str, Any]]:
        found = FakeFlight._described(events, wanted)
        return [{**each, "bytes": 2**50} if each["partition"] == "large" else each for each in found]

    events._described = described  # type: ignore[method-assign]
    options = {"subscribe": "events,large", "minPartitions": "4000"}

    assert len(source(events, **options).reader(BODIES).partitions()) <= 4_098
