"""How long closing a connection may take, and what is said of a broker that does not answer.

A broker that answers may take its time with confirms; what does not answer is waited for `HANG_UP_SECONDS` in all, not
for each stream. Pure but for the clock, which tests replace.
"""

from collections.abc import Callable
from time import monotonic

from penstock.client.errors import DEADLINE_EXCEEDED, UNAVAILABLE

__all__ = ["Grace", "no_room", "silence"]

HANG_UP_SECONDS = 2.0


class Grace:
    """The time limit of one close.

    It has `timeout` seconds for confirms, less where the connection is lost, and then HANG_UP_SECONDS for all streams
    together to end.
    """

    def __init__(self, timeout: float = 0.0, clock: Callable[[], float] = monotonic) -> None:
        self._timeout = timeout
        self._clock = clock
        self._began = clock()
        self._hanging_up: float | None = None

    def confirms_left(self, is_lost: bool) -> float:
        """Seconds to go on waiting for confirms."""
        timeout = min(self._timeout, HANG_UP_SECONDS) if is_lost else self._timeout
        if is_lost:
            # One wait for everything: what was waited for confirms is not waited again for streams to end.
            self._hanging_up = self._began
        return max(0.0, self._began + timeout - self._clock())

    def hang_up_ms(self) -> int:
        """Milliseconds that the next stream may take to end."""
        if self._hanging_up is None:
            self._hanging_up = self._clock()
        return int(1_000 * max(0.0, self._hanging_up + HANG_UP_SECONDS - self._clock()))


def silence(lost: str | None, timeout: float) -> tuple[int, str, bytes]:
    """Return the status that says why no confirm came. `lost` is why there is no connection, if there is none."""
    return _status(lost, f"no confirm within {timeout:g} s; the message may have been stored")


def no_room(lost: str | None, timeout: float) -> tuple[int, str, bytes]:
    """Return the status for a message that was not sent because too many earlier ones wait for their confirms."""
    waiting = f"too many messages wait for their confirms, and none came within {timeout:g} s"
    return _status(lost, f"{waiting}; the rest was not sent")


def _status(lost: str | None, rest: str) -> tuple[int, str, bytes]:
    if lost is None:
        return DEADLINE_EXCEEDED, rest, b""
    return UNAVAILABLE, f"the connection to the broker is lost ({lost}); {rest}", b""
