"""The start and end of a reading in a stream, as people write them.

They are `first`, `last`, `next`, an offset, the last so many, a time, or an age such as `1h`. Times are compared with
the broker's; ages count back from this machine's clock.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias

from penstock.v1 import streams_pb2

__all__ = ["Place", "age_ms", "ends_of", "start_of", "timestamp_of"]

Place: TypeAlias = str | int | datetime

PLACES = {
    "first": streams_pb2.PLACE_FIRST,
    "last": streams_pb2.PLACE_LAST,
    "next": streams_pb2.PLACE_NEXT,
}
OFFSET_MAX = 2**64 - 1
UNIT_MS = {
    "Y": 365 * 86_400_000,
    "M": 30 * 86_400_000,
    "D": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
}
_AGE = re.compile(r"([0-9]{1,12})([YMDhms])")
_WAY_OUT = "write first, last, next, an offset, -N for the last N, a time as 2026-01-31T12:00:00Z, or an age as 1h"


def start_of(place: Place, now_ms: int) -> streams_pb2.Start:
    """Return the start in the contract's form. Raises ValueError, which names the accepted forms."""
    number = _number(place)
    if number is not None and number < 0:
        return streams_pb2.Start(last_count=_bounded(-number))
    if number is not None:
        return streams_pb2.Start(offset=_bounded(number))
    if place in PLACES:
        return streams_pb2.Start(place=PLACES[str(place)])
    return streams_pb2.Start(timestamp_ms=_time(place, now_ms))


def timestamp_of(place: Place | None, now_ms: int) -> int | None:
    """Return the time of a place, or None if it is not a time."""
    if place is None or _number(place) is not None or place in PLACES:
        return None
    return _time(place, now_ms)


def ends_of(place: Place | None, partitions: Sequence[streams_pb2.PartitionOffsets]) -> list[int | None]:
    """Before which offset each partition's reading ends. For a time, the partitions must have been asked for it."""
    if place is None:
        return [None] * len(partitions)
    number = _number(place)
    if number is not None:
        if number < 0:
            raise ValueError(f"a read cannot end at {number}; write an offset, 'next' or a time")
        return [_bounded(number)] * len(partitions)
    if place == "next":
        return [partition.next for partition in partitions]
    if place in PLACES:
        raise ValueError(f"a read cannot end at '{place}'; write an offset, 'next' or a time")
    return [partition.at_timestamp for partition in partitions]


def age_ms(text: str) -> int | None:
    found = _AGE.fullmatch(text)
    return None if found is None else int(found[1]) * UNIT_MS[found[2]]


def _number(place: Place) -> int | None:
    if isinstance(place, bool):
        raise ValueError(f"'{place}' is not a position in a stream; {_WAY_OUT}")
    if isinstance(place, int):
        return place
    if isinstance(place, str) and re.fullmatch(r"-?[0-9]{1,20}", place):
        return int(place)
    return None


def _time(place: Place, now_ms: int) -> int:
    if isinstance(place, datetime):
        return max(0, int(place.timestamp() * 1_000))
    age = age_ms(str(place))
    if age is not None:
        return max(0, now_ms - age)
    try:
        return max(0, int(datetime.fromisoformat(str(place)).timestamp() * 1_000))
    except ValueError as error:
        raise ValueError(f"'{place}' is not a position in a stream; {_WAY_OUT}") from error


def _bounded(number: int) -> int:
    if number > OFFSET_MAX:
        raise ValueError(f"{number} is too large for an offset")
    return number
