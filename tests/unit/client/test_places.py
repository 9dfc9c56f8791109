"""Start and end of a read, as users write them."""

from datetime import UTC, datetime

import pytest

from penstock.client.places import Place, ends_of, start_of, timestamp_of
from penstock.v1 import streams_pb2 as wire

NOW_MS = 1_800_000_000_000
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_MS = 1_769_860_800_000


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("first", wire.Start(place=wire.PLACE_FIRST)),
        ("last", wire.Start(place=wire.PLACE_LAST)),
        ("next", wire.Start(place=wire.PLACE_NEXT)),
        (0, wire.Start(offset=0)),
        ("4711", wire.Start(offset=4711)),
        (-100, wire.Start(last_count=100)),
        ("-5", wire.Start(last_count=5)),
        ("1h", wire.Start(timestamp_ms=NOW_MS - 3_600_000)),
        ("7D", wire.Start(timestamp_ms=NOW_MS - 7 * 86_400_000)),
        ("99999Y", wire.Start(timestamp_ms=0)),
        (NOON, wire.Start(timestamp_ms=NOON_MS)),
        ("2026-01-31T12:00:00Z", wire.Start(timestamp_ms=NOON_MS)),
    ],
)
def test_a_reading_begins_where_it_is_told_to(place: Place, expected: wire.Start) -> None:
    assert start_of(place, NOW_MS) == expected


@pytest.mark.parametrize("place", ["", "yesterday", "1 h", "1.5", True, "h", 2**64, "2026-13-01"])
def test_what_is_no_place_is_refused_with_what_to_write(place: Place) -> None:
    with pytest.raises(ValueError, match=r"write|too large"):
        start_of(place, NOW_MS)


def test_each_partition_ends_at_its_own_offset() -> None:
    partitions = [wire.PartitionOffsets(next=5, at_timestamp=3), wire.PartitionOffsets(next=9, at_timestamp=8)]

    assert ends_of(None, partitions) == [None, None]
    assert ends_of(7, partitions) == [7, 7]
    assert ends_of("next", partitions) == [5, 9]
    assert ends_of(NOON, partitions) == [3, 8]
    for place in ("first", "last", -1):
        with pytest.raises(ValueError, match="cannot end"):
            ends_of(place, partitions)


def test_only_a_time_is_asked_of_the_broker() -> None:
    assert timestamp_of(NOON, NOW_MS) == NOON_MS
    assert [timestamp_of(place, NOW_MS) for place in (None, 7, "7", "next")] == [None] * 4
