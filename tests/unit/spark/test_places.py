"""Starts and ends: words, offsets and times become offsets in each partition."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.spark.described import Partition
from penstock.spark.errors import OptionError
from penstock.spark.places import EARLIEST, LATEST, NumbersByPartition, Place, parse_offsets, parse_times, resolved
from support.partitions import Messages


def there() -> dict[str, Partition]:
    first = Messages(name="a").more(8).described()
    second = replace(Messages(name="events-1").more(6).without(2).described(), stream="events", number=1)
    return {"a": replace(first, stream="a"), "events-1": second}


def offsets(place: Place, strategy: str = "error", at_times: dict[int, dict[str, int]] | None = None) -> dict[str, int]:
    found = {
        time: {name: replace(there()[name], at_timestamp=offset) for name, offset in at.items()}
        for time, at in (at_times or {}).items()
    }
    return resolved(place, there(), found, strategy)


@pytest.mark.parametrize(
    ("place", "found"),
    [
        (EARLIEST, {"a": 1, "events-1": 3}),
        (LATEST, {"a": 9, "events-1": 7}),
        (Place("offsets", None, {"a": -1, "events-1": -2}), {"a": 9, "events-1": 3}),
        (Place("offsets", None, {"a": 5, "events": {"1": 6}}), {"a": 5, "events-1": 6}),
        (Place("offsets", None, {"a": {"0": 5}, "events": {"1": -1}}), {"a": 5, "events-1": 7}),
        # Offsets begin at 1 here, and at 0 in Kafka.
        (Place("offsets", None, {"a": {"0": 0}, "events": {"1": 0}}), {"a": 1, "events-1": 1}),
    ],
)
def test_places_become_offsets(place: Place, found: dict[str, int]) -> None:
    assert offsets(place) == found


def test_a_time_becomes_the_first_offset_stored_then_or_later() -> None:
    at_times = {5: {"a": 4, "events-1": 3}, 7: {"events-1": 5}}

    assert offsets(Place("times", 5), at_times=at_times) == {"a": 4, "events-1": 3}
    by_partition = Place("times", None, {"a": 5, "events": {"1": 7}})
    assert by_partition.times(there()) == {5, 7}
    assert offsets(by_partition, at_times=at_times) == {"a": 4, "events-1": 5}


def test_a_time_behind_the_last_message_is_an_error_or_the_end() -> None:
    at_times = {5: {"a": 9, "events-1": 3}}

    with pytest.raises(OptionError, match="partition 'a' has no message stored at 5 or later; choose an earlier time"):
        offsets(Place("times", 5), at_times=at_times)
    assert offsets(Place("times", 5), "latest", at_times) == {"a": 9, "events-1": 3}


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"a": 1}, "is set for partition 'events-1'"),
        ({"a": 1, "events-1": 1, "c": 1}, "no partition 'c'"),
        ({"a": 1, "events": {"1": 4, "2": 4}}, "no partition 2 of stream 'events'"),
        ({"a": {"0": 1}, "events": {"0": 1}}, "no partition 0 of stream 'events'"),
    ],
)
def test_offsets_name_every_partition_and_no_other(numbers: NumbersByPartition, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        offsets(Place("offsets", None, numbers))


@pytest.mark.parametrize("value", ['{"events": {}}', '{"events": {"0": true}}', '{"events": {"0": -3}}', "[1]"])
def test_json_of_another_form_is_refused_with_an_example(value: str) -> None:
    with pytest.raises(ValueError, match="JSON such as"):
        parse_offsets(value)


@pytest.mark.parametrize(
    "value",
    ['{"events-0": 1, "events-0": 2}', '{"events": {"0": 1, "0": 2}}', '{"events": {"0": 1}, "events": {"1": 2}}'],
)
def test_a_name_that_comes_twice_is_refused(value: str) -> None:
    """The last one counted, and nothing told of the other."""
    with pytest.raises(ValueError, match=r"^it names '(events-0|0|events)' twice; name each once$"):
        parse_offsets(value)


def test_a_partition_that_is_named_in_both_ways_is_refused() -> None:
    with pytest.raises(
        OptionError, match="partition 'events-1' has two offsets or times, by its name and by its number"
    ):
        offsets(Place("offsets", None, {"a": 1, "events-1": 3, "events": {"1": 4}}))


@pytest.mark.parametrize("parse", [parse_offsets, parse_times])
def test_json_that_is_nested_too_deep_is_refused_with_an_example(parse: Callable[[str], Place]) -> None:
    with pytest.raises(ValueError, match="JSON such as"):
        parse('{"events": ' + "[" * 100_000)
