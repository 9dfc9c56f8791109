"""The driver's view of streams: what it asks for, how long it waits, and when a pattern's streams are listed again."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from penstock.spark.described import Partition
from penstock.spark.errors import NotFoundError
from penstock.spark.streams import LISTED_EVERY_SECONDS, DescribedStreams
from penstock.spark.subscriptions import parse_list, parse_pattern
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
