"""Starts and ends of a read: words, offsets or times, for all partitions or for each, as the Kafka source has them.

JSON names a partition by its name, or by its stream and its number in it. Pure: no wire, no Spark.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from penstock.spark.described import Partition
from penstock.spark.errors import OptionError
from penstock.spark.objects import parse_object

__all__ = [
    "EARLIEST",
    "LATEST",
    "NumbersByPartition",
    "Place",
    "parse_numbers",
    "parse_offsets",
    "parse_times",
    "resolved",
]

# Special offsets in a mapping, as in the Kafka source.
LATEST_OFFSET, EARLIEST_OFFSET = -1, -2
# The broker has no higher offset, and no later time.
NUMBER_MAX = 2**63 - 1
# A number for a partition by its name, or for the numbers of a stream's partitions.
NumbersByPartition: TypeAlias = Mapping[str, int | Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Place:
    """A start or end in each partition: its first or last, or times or offsets, for all partitions or by name."""

    kind: str
    everywhere: int | None = None
    by_partition: NumbersByPartition | None = None

    def of(self, partition: Partition) -> int:
        """Return the number for a partition; raise OptionError when a mapping omits it."""
        if self.everywhere is not None:
            return self.everywhere
        values = self.by_partition or {}
        found = values.get(partition.name)
        if not isinstance(found, int):
            of_stream = values.get(partition.stream)
            found = of_stream.get(str(partition.number)) if isinstance(of_stream, Mapping) else None
        if found is None:
            raise OptionError(f"no offset or time is set for partition '{partition.name}'; set one for every partition")
        return found

    @property
    def is_first(self) -> bool:
        """Return whether it is the first message of every partition."""
        numbers: list[int] = []
        for each in (self.by_partition or {}).values():
            numbers += [each] if isinstance(each, int) else each.values()
        of_all = self.kind == "offsets" and bool(numbers) and set(numbers) == {EARLIEST_OFFSET}
        return self.kind == "earliest" or of_all

    def is_archived(self, partition: Partition) -> bool:
        """Return whether it may be below the log of a partition whose archive cannot be read."""
        if self.kind == "offsets":
            # It has no offset 0; who comes from Kafka begins there.
            number = self.of(partition)
            return number == EARLIEST_OFFSET or (number >= 0 and max(1, number) < partition.first)
        return self.kind != "latest"

    def check_names(self, there: Mapping[str, Partition]) -> None:
        """Raise OptionError when the mapping names a partition that is not read, or one in two ways."""
        known = {(each.stream, str(each.number)) for each in there.values()}
        for name, value in (self.by_partition or {}).items():
            if isinstance(value, int):
                if name not in there:
                    raise OptionError(f"there is no partition '{name}'; valid are: {', '.join(sorted(there))}")
                continue
            for number in value:
                if (name, number) not in known:
                    raise OptionError(
                        f"there is no partition {number} of stream '{name}'; valid are: {', '.join(sorted(there))}"
                    )
        for partition in there.values():
            self.check_named_once(partition)

    def check_named_once(self, partition: Partition) -> None:
        values = self.by_partition or {}
        of_stream = values.get(partition.stream)
        is_numbered = isinstance(of_stream, Mapping) and str(partition.number) in of_stream
        if is_numbered and isinstance(values.get(partition.name), int):
            raise OptionError(
                f"partition '{partition.name}' has two offsets or times, by its name and by its number; set one of them"
            )

    def times(self, there: Mapping[str, Partition]) -> set[int]:
        """Return the times to look up."""
        return {self.of(partition) for partition in there.values()} if self.kind == "times" else set()


EARLIEST = Place("earliest")
LATEST = Place("latest")


def resolved(
    place: Place, there: Mapping[str, Partition], at_times: Mapping[int, Mapping[str, Partition]], strategy: str
) -> dict[str, int]:
    """Return the offset of a place in each partition, within what is there. Raises OptionError.

    `at_times` has the partitions as described for each time; `strategy` says what a time behind the last message is:
    `error`, or `latest`.
    """
    place.check_names(there)
    found = {}
    for name, partition in there.items():
        if place.kind in {"earliest", "latest"}:
            found[name] = partition.first if place == EARLIEST else partition.next
            continue
        number = place.of(partition)
        if place.kind == "times":
            described = at_times[number].get(name)
            offset = None if described is None else described.at_timestamp
            if offset is None or offset >= partition.next:
                if strategy == "error":
                    raise OptionError(
                        f"partition '{name}' has no message stored at {number} or later; choose an earlier time, or "
                        "set startingOffsetsByTimestampStrategy=latest to begin at its end"
                    )
                offset = partition.next
            found[name] = offset
        else:
            # The first message of a partition has the offset 1; who comes from Kafka begins at 0.
            found[name] = {LATEST_OFFSET: partition.next, EARLIEST_OFFSET: partition.first}.get(number, max(1, number))
    return found


def parse_offsets(value: str) -> Place:
    if value.lower() in {"earliest", "latest"}:
        return EARLIEST if value.lower() == "earliest" else LATEST
    return Place("offsets", by_partition=parse_numbers(value, EARLIEST_OFFSET, "earliest, latest or "))


def parse_times(value: str) -> Place:
    return Place("times", by_partition=parse_numbers(value, 0, ""))


def parse_numbers(value: str, least: int, other_words: str) -> NumbersByPartition:
    """Parse a JSON object that maps partitions, or streams and the numbers of their partitions, to numbers."""
    wanted = (
        f'it must be {other_words}JSON such as {{"events-0": 23}} or {{"events": {{"0": 23}}}}, no number below {least}'
    )
    found = parse_object(value, wanted)
    for numbers in found.values():
        for number in numbers.values() if isinstance(numbers, dict) and numbers else [numbers]:
            if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= NUMBER_MAX:
                raise ValueError(wanted)
    return found
