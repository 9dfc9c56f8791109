"""Rows that the broker filters: what a ticket asks for, and losses that are found all the same."""

from collections.abc import Iterator

import pytest

from penstock.spark.errors import DataLossError, OptionError
from penstock.spark.losses import checked
from penstock.spark.options import parse_read_options
from penstock.spark.pieces import Piece
from penstock.spark.ranges import OffsetRange
from penstock.spark.wire import Wire
from support.fake_flight import FakeFlight

ROWS = 2_500


@pytest.fixture
def events(server: FakeFlight) -> FakeFlight:
    """Every hundredth row has the key."""
    server.declare("events")
    for number in range(ROWS):
        server.publish("events", b"x", key=b"k" if number % 100 == 0 else b"other")
    return server


def wanted_of(server: FakeFlight) -> OffsetRange:
    with Wire(server.uri) as wire:
        there = wire.describe(("events",))["events"]
    return OffsetRange("events", 1, there.next, rows=there.rows, id=there.id)


def read(server: FakeFlight, wanted: OffsetRange, key: str = "k") -> Iterator[Piece]:
    with Wire(server.uri) as wire:
        yield from checked(wire.read_pieces(wanted, ["offset"], {"key_is": key}), wanted, wire)


def test_options_become_the_filters_of_a_ticket() -> None:
    def filters(**options: str) -> object:
        return parse_read_options({"stream": "events", **options}).filters

    assert filters() == {}
    assert filters(keyIs="a", routingKeyIs="b") == {"key_is": "a", "routing_key_is": "b"}
    assert filters(headerIs="unit=a=b") == {"header_is": {"name": "unit", "value": "a=b"}}
    assert filters(headerIs="unit=") == {"header_is": {"name": "unit", "value": ""}}
    for wrong in ("unit", "=C", ""):
        with pytest.raises(OptionError, match="such as country=de"):
            filters(headerIs=wrong)


def test_reads_with_other_filters_have_other_dead_letters() -> None:
    reads = [parse_read_options({"stream": "e", **more}) for more in ({}, {"headerIs": "a=b"}, {"headerIs": "a=c"})]

    assert len({each.dead_letters for each in reads}) == 3


def test_rows_are_filtered_by_the_broker_and_all_are_counted(events: FakeFlight) -> None:
    pieces = list(read(events, wanted_of(events)))

    assert [offset for piece in pieces for offset in piece.rows["offset"].to_pylist()] == list(range(1, ROWS, 100))
    assert [(piece.next, piece.seen) for piece in pieces] == [(1_001, 1_000), (2_001, 1_000), (2_501, 500)]


def test_a_filtered_read_goes_on_behind_the_last_message_that_was_looked_at(events: FakeFlight) -> None:
    events.break_get_after = 2_000

    pieces = list(read(events, wanted_of(events), key="nobody's"))

    assert [(piece.next, piece.seen, piece.rows.num_rows) for piece in pieces] == [
        (1_001, 1_000, 0),
        (2_001, 1_000, 0),
        (2_501, 500, 0),
    ]


def test_a_loss_among_rows_that_are_filtered_out_is_found(events: FakeFlight) -> None:
    wanted = wanted_of(events)
    events.corrupt("events", 1_502)

    with pytest.raises(DataLossError, match="1 message of partition 'events' between offsets 1 and 2501"):
        list(read(events, wanted))


def test_rows_that_retention_removes_while_they_are_filtered_are_found(events: FakeFlight) -> None:
    events.break_get_after = 1_000
    wanted = wanted_of(events)
    pieces = read(events, wanted)
    next(pieces)

    events.retain("events", 1_502)

    with pytest.raises(DataLossError, match="retention removed"):
        list(pieces)


def test_numbers_that_a_start_skipped_are_no_loss_of_a_filtered_read(events: FakeFlight) -> None:
    events.skip("events")
    events.publish("events", b"x", key=b"k")
    wanted = wanted_of(events)

    pieces = list(read(events, wanted))

    assert sum(piece.seen for piece in pieces) == ROWS + 1
    assert pieces[-1].rows["offset"].to_pylist()[-1] == wanted.end - 1


def test_rows_that_retention_removes_behind_the_read_are_no_loss(events: FakeFlight) -> None:
    wanted = wanted_of(events)
    pieces = read(events, wanted)
    found = [next(pieces), next(pieces), next(pieces)]

    events.retain("events", 1_502)

    assert list(pieces) == []
    assert sum(piece.seen for piece in found) == ROWS


def test_another_stream_of_that_name_is_told_even_if_it_has_as_many_rows(events: FakeFlight) -> None:
    wanted = wanted_of(events)
    events.declare("events")
    events.publish("events", *[b"x"] * ROWS)

    with pytest.raises(DataLossError):
        list(read(events, wanted))
