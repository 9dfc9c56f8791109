"""Bounds of what a broker may answer, for programs that connect to brokers which they do not trust.

Such a broker may answer with pages without end, or with millions of entries of two bytes, each of which takes hundreds
in memory. The bounds are those of one verb, of all its calls together. Limit: entries within entries are not counted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

from google.protobuf.message import DecodeError

from penstock.client.errors import BrokerError, TooLargeError
from penstock.client.steps import Steps, drive

__all__ = ["Bounds", "drive_within"]

T = TypeVar("T")
# Of protobuf's encoding: a field's kind is the last three bits of its tag.
_VARINT, _EIGHT_BYTES, _SIZED, _FOUR_BYTES = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one verb: bytes and entries of all its answers, and seconds until its last call begins."""

    bytes_max: int
    entries_max: int
    seconds_max: float


def drive_within(
    bounds: Bounds,
    steps: Steps[T],
    perform: Callable[[str, bytes], bytes],
    clock: Callable[[], float] = monotonic,
) -> T:
    """Run a verb to its end as `drive` does. Raises BrokerError when the broker answers more, or what is no answer."""
    until, byte_count, entry_count = clock() + bounds.seconds_max, 0, 0

    def bounded(method: str, payload: bytes) -> bytes:
        nonlocal byte_count, entry_count
        if clock() >= until:
            raise BrokerError(f"the broker's answer takes more than {bounds.seconds_max:g} s")
        try:
            answer = perform(method, payload)
        except TooLargeError as error:
            if error.detail.reason:
                raise
            raise _too_many_bytes(bounds) from error  # from the transport, which has the same bound
        byte_count += len(answer)
        if byte_count > bounds.bytes_max:
            raise _too_many_bytes(bounds)
        entry_count += entries_in(answer, bounds.entries_max + 1)
        if entry_count > bounds.entries_max:
            raise BrokerError(f"the broker answers with more than {bounds.entries_max} entries")
        return answer

    try:
        return drive(steps, bounded)
    except DecodeError as error:
        raise BrokerError("the broker's answer cannot be read") from error


def entries_in(message: bytes, count_max: int) -> int:
    """Return the number of fields that hold text or messages in a serialised message, at most `count_max`."""
    at, count = 0, 0
    while at < len(message) and count < count_max:
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _SIZED:
            size, at = _varint(message, at)
            at, count = at + size, count + 1
        elif kind == _VARINT:
            _, at = _varint(message, at)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            at += 8 if kind == _EIGHT_BYTES else 4
        else:
            raise BrokerError("the broker's answer cannot be read")
    return count


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        value, at = value | (byte & 127) << shift, at + 1
        if byte < 128:
            return value, at
    raise BrokerError("the broker's answer cannot be read")


def _too_many_bytes(bounds: Bounds) -> BrokerError:
    return BrokerError(f"the broker answers with more than {bounds.bytes_max} bytes")
