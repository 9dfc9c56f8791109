"""The driver's view of streams: what it asks for, how long it waits, and when a pattern's streams are listed again."""

import logging
from collections.abc import Mapping
from dataclasses import replace

import pytest

from penstock.spark import streams as module
from penstock.spark.described import Partition
from penstock.spark.errors import NotFoundError, OptionError
from penstock.spark.streams import LISTED_EVERY_SECONDS, DescribedStreams
from penstock.spark.subscriptions import parse_assignment, parse_list, parse_pattern
from support.partitions import Messages


class FakeStreams:
    """Streams of one partition each; `gone` are listed and deleted since."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.gone: list[str] = []
        self.asked: list[tuple[tuple[str, ...], Mapping[str, int], int]] = []
        self.listings = 0

    def describe(
        self,
        streams: tuple[str, ...],
        at_timestamp_ms: int | None = None,
        ends: Mapping[str, int] | None = None,
        wait_ms: int = 0,
    ) -> dict[str, Partition]:
        self.asked.append((streams, dict(ends or {}), wait_ms))
        for name in streams:
            if name in self.gone:
                raise NotFoundError(f"stream '{name}' not found")
        return {name: replace(Messages(name=name).more(3).described(), stream=name) for name in streams}

    def list_streams(self) -> list[str]:
        self.listings += 1
        return [name for name in self.names if self.listings == 1 or name not in self.gone]


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


def test_a_second_look_waits_from_the_ends_of_the_first() -> None:
    wire = FakeStreams()
    streams = DescribedStreams(wire, parse_list("a,b"))

    assert list(streams.look()) == ["a", "b"]
    streams.look(700)

    assert wire.asked == [(("a", "b"), {}, 0), (("a", "b"), {"a": 4, "b": 4}, 700)]
    assert list(streams.last) == ["a", "b"]
    assert len(wire.asked) == 2


def test_a_pattern_finds_new_streams_after_some_seconds_and_waits_no_longer_than_that() -> None:
    wire, clock = FakeStreams("events-a", "other"), Clock()
    streams = DescribedStreams(wire, parse_pattern("events-.*"), clock, clock.pause)
    assert list(streams.look()) == ["events-a"]
    wire.names.append("events-b")

    clock.now += LISTED_EVERY_SECONDS - 1
    assert list(streams.look(60_000)) == ["events-a"]
    clock.now += 1
    assert list(streams.look()) == ["events-a", "events-b"]

    assert (wire.listings, wire.asked[1][2]) == (2, 1_000)


def test_a_pattern_without_streams_waits_here() -> None:
    wire, clock = FakeStreams("other"), Clock()
    streams = DescribedStreams(wire, parse_pattern("events-.*"), clock, clock.pause)

    assert streams.look(500) == {}
    assert (wire.asked, clock.pauses) == ([], [0.5])


def test_a_stream_that_was_deleted_since_it_was_listed_is_left_out() -> None:
    wire = FakeStreams("events-a", "events-b")
    wire.gone.append("events-b")

    assert list(DescribedStreams(wire, parse_pattern("events-.*")).look()) == ["events-a"]
    with pytest.raises(NotFoundError, match="stream 'events-b' not found"):
        DescribedStreams(wire, parse_list("events-b")).look()


def test_a_read_that_goes_on_leaves_out_a_stream_that_was_deleted_and_reads_it_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wire, clock = FakeStreams("a", "b"), Clock()
    streams = DescribedStreams(wire, parse_list("a,b"), clock, clock.pause, goes_on=True)
    assert list(streams.look()) == ["a", "b"]
    wire.gone.append("b")

    with caplog.at_level(logging.WARNING, "penstock"):
        assert [list(streams.look()) for _ in range(3)] == [["a"]] * 3
    assert caplog.messages == ["stream 'b' is not there: the query goes on without it until it is there again"]
    assert wire.asked[-1][1] == {"a": 4}
    streams.look(60_000)
    assert wire.asked[-1][2] == 10_000

    wire.gone.clear()
    assert list(streams.look()) == ["a"]
    clock.now += LISTED_EVERY_SECONDS
    assert list(streams.look()) == ["a", "b"]
    streams.look(60_000)
    assert wire.asked[-1][2] == 60_000


def test_a_read_that_goes_on_waits_here_while_none_of_its_streams_is_there() -> None:
    wire, clock = FakeStreams("a"), Clock()
    streams = DescribedStreams(wire, parse_list("a"), clock, clock.pause, goes_on=True)
    wire.gone.append("a")

    assert (streams.look(500), clock.pauses) == ({}, [0.5])


def test_the_first_look_of_a_read_that_goes_on_needs_all_its_streams() -> None:
    """A name that was mistyped would be waited for."""
    wire = FakeStreams("a")
    wire.gone.append("b")

    with pytest.raises(NotFoundError, match="stream 'b' not found"):
        DescribedStreams(wire, parse_list("a,b"), goes_on=True).look(needs_all=True)
    with pytest.raises(OptionError, match="stream 'a' has no partition 7"):
        DescribedStreams(wire, parse_assignment('{"a": [0, 7]}'), goes_on=True).look(needs_all=True)


def test_a_read_that_goes_on_leaves_out_an_assigned_partition_that_is_gone() -> None:
    assigned = parse_assignment('{"a": [0, 7]}')

    assert list(DescribedStreams(FakeStreams("a"), assigned, goes_on=True).look()) == ["a"]


class FakePartitions(FakeStreams):
    """A stream of two partitions, each of which is also described by its own name."""

    def describe(
        self,
        streams: tuple[str, ...],
        at_timestamp_ms: int | None = None,
        ends: Mapping[str, int] | None = None,
        wait_ms: int = 0,
    ) -> dict[str, Partition]:
        if streams != ("a",):
            return super().describe(streams, at_timestamp_ms, ends, wait_ms)
        there = tuple(name for name in ("a-0", "a-1") if name not in self.gone)
        found = super().describe(there, at_timestamp_ms, ends, wait_ms)
        self.asked[-1] = (streams, *self.asked[-1][1:])
        return {name: replace(each, stream="a", number=int(name[-1])) for name, each in found.items()}


def test_a_look_at_assigned_partitions_waits_for_these_alone() -> None:
    """Messages of others ended the wait, 20 times a second."""
    wire = FakePartitions()
    streams = DescribedStreams(wire, parse_assignment('{"a": [1]}'))

    looks = [streams.look(), streams.look(700), streams.look(700)]

    assert wire.asked == [(("a",), {}, 0), (("a-1",), {"a-1": 4}, 700), (("a-1",), {"a-1": 4}, 700)]
    assert [list(look) for look in looks] == [["a-1"]] * 3
    assert looks[2] == looks[0] == streams.last


def test_an_assigned_partition_that_goes_during_the_wait_is_left_out_if_it_may() -> None:
    wire = FakePartitions()
    strict, patient = (DescribedStreams(wire, parse_assignment('{"a": [0, 1]}'), goes_on=may) for may in (False, True))
    assert list(strict.look()) == list(patient.look()) == ["a-0", "a-1"]
    wire.gone.append("a-1")

    with pytest.raises(NotFoundError, match="stream 'a-1' not found"):
        strict.look(700)
    assert list(patient.look(700)) == ["a-0"]


def test_a_look_at_very_many_assigned_partitions_asks_for_their_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NAMES_MAX", 1)
    wire = FakePartitions()
    streams = DescribedStreams(wire, parse_assignment('{"a": [1, 0]}'))

    streams.look()
    streams.look(700)

    assert wire.asked[-1] == (("a",), {"a-0": 4, "a-1": 4}, 700)
