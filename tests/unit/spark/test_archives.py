"""Reads that begin in an archive which is not there, and streams that lack partitions."""

import json
import logging
from dataclasses import replace

import pytest

from penstock.spark.archives import check_archives, check_complete
from penstock.spark.described import Partition, parse_partitions
from penstock.spark.errors import DataLossError
from penstock.spark.losses import remaining
from penstock.spark.pieces import Piece
from penstock.spark.places import EARLIEST, LATEST, Place, parse_offsets, parse_times
from penstock.spark.positions import Position, Positions
from penstock.spark.ranges import OffsetRange, advanced, begun, passed_over
from penstock.spark.shares import Limits
from support.fake_flight import FakeFlight
from support.partitions import Messages

ERROR = "archive 'events' in vhost '/' cannot be read: it is not mounted"


def partition(first: int = 101, archive_error: str | None = ERROR) -> Partition:
    there = Messages().more(200).without(first - 1).described()
    return replace(there, archive_error=archive_error)


@pytest.mark.parametrize(
    ("place", "is_refused"),
    [
        (EARLIEST, True),
        (LATEST, False),
        (parse_offsets('{"events": -2}'), True),
        (parse_offsets('{"events": -1}'), False),
        (parse_offsets('{"events": 0}'), True),
        (parse_offsets('{"events": 100}'), True),
        (parse_offsets('{"events": 101}'), False),
        (parse_offsets('{"events": {"0": 7}}'), True),
        (parse_times('{"events": 1}'), True),
        (Place("times", 1), True),
    ],
)
def test_a_read_that_begins_in_an_archive_which_is_not_there_is_refused(place: Place, is_refused: bool) -> None:
    there = {"events": partition()}

    check_archives([place], {"events": partition(archive_error=None)}, True)
    if is_refused:
        with pytest.raises(DataLossError, match=r"up to 100 messages before offset 101 are missing: .* not mounted"):
            check_archives([LATEST, place], there, True)
    else:
        check_archives([place], there, True)


def test_with_leave_it_is_logged_how_many_rows_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "penstock"):
        check_archives([EARLIEST], {"events": partition()}, False)

    assert caplog.messages == [f"up to 100 messages of partition 'events' are passed over: {ERROR}"]


def test_a_query_that_comes_to_an_archive_which_is_not_there_says_so() -> None:
    there = partition()
    start = {"events": Position("events", there.id, 51, 50)}

    with pytest.raises(
        DataLossError, match=r"50 messages of partition 'events' between offsets 51 and 201.*not mounted"
    ):
        advanced(start, {"events": there}, None, Limits())
    behind = {"events": Position("events", there.id, 150, 149)}
    assert advanced(behind, {"events": there}, None, Limits()) is not None, "what it reads is in the log"


def test_a_partition_that_is_new_to_a_query_begins_in_its_archive() -> None:
    with pytest.raises(DataLossError, match="not mounted"):
        begun({}, {"events": partition()}, True)
    assert begun({}, {"events": partition()}, False) == {"events": 101}


def test_what_a_batch_passes_over_is_counted() -> None:
    there = {"events": partition()}

    def passed(start: Positions) -> dict[str, int]:
        end = advanced(start, there, None, Limits(), False)
        assert end is not None
        return passed_over(start, end, there)

    identity = there["events"].id
    assert passed({"events": Position("events", identity, 51, 50)}) == {"events": 50}
    assert passed({"events": Position("events", identity, 101, 100)}) == {}
    assert passed({}) == {"events": 100}
    there["events"] = partition(archive_error=None)
    assert passed({}) == {}, "what retention took before a read began is no loss"


def test_a_task_counts_the_rows_that_it_passes_over(server: FakeFlight, caplog: pytest.LogCaptureFixture) -> None:
    class Described:
        def describe(self, streams: tuple[str, ...]) -> dict[str, Partition]:
            return {"events": partition()}

    wanted = OffsetRange("events", 1, 201, rows=200, id="a")
    pieces = iter([Piece(None, 151, 90)])

    with caplog.at_level(logging.WARNING, "penstock"):
        assert len(list(remaining(pieces, wanted, Described()))) == 1

    assert caplog.messages == [
        "110 messages of partition 'events' between offsets 1 and 201 are missing and passed over"
    ]


def test_a_stream_that_lacks_a_partition_is_refused_or_read_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    answer = {"partitions": [described("events", number) for number in (0, 2)]}
    there = parse_partitions(json.loads(json.dumps(answer)))
    whole = parse_partitions({"partitions": [described("events", number) for number in range(3)]})
    of_one = described("events", 1) | {"stream": "events-1"}
    del of_one["partition_count"]

    with pytest.raises(DataLossError, match="stream 'events' lacks 1 of the partitions that it was declared with"):
        check_complete(there, True)
    with caplog.at_level(logging.WARNING, "penstock"):
        check_complete(there, False)
    check_complete(whole, True)
    check_complete(
        parse_partitions({"partitions": [of_one, *answer["partitions"], of_one | {"stream": "events"}]}), True
    )

    assert len(caplog.messages) == 1


def described(stream: str, number: int) -> dict[str, object]:
    numbers = {"first": 1, "next": 1, "rows": 0, "bytes": 0}
    name = f"{stream}-{number}"
    return {"stream": stream, "partition": name, "id": name, **numbers, "runs": [], "partition_count": 3}
