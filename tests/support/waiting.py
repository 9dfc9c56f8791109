"""Waits for effects of another process: ask again until the answer is the expected one, within a limit.

It is for effects without a notification (a broker that notices a closed connection), never instead of an existing
answer.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

SECONDS_MAX = 10
STEP_SECONDS = 0.02
T = TypeVar("T")


def eventually(read: Callable[[], object], expected: object, seconds_max: float = SECONDS_MAX) -> None:
    """Wait until `read()` returns `expected`; fail with the last answer otherwise."""
    never = threading.Event()
    found = read()
    for _ in range(int(seconds_max / STEP_SECONDS)):
        if found == expected:
            return
        never.wait(STEP_SECONDS)
        found = read()
    assert found == expected, f"still not so after {seconds_max} s"


def found(read: Callable[[], T | None], seconds_max: float = SECONDS_MAX) -> T:
    """Wait until `read()` returns something, and return it.

    So a test waits for a message that it gets: a count of ready messages has delayed ones and dead letters on their
    way, too, which no client gets.
    """
    some: list[T] = []

    def is_found() -> bool:
        one = read()
        some.extend([] if one is None else [one])
        return one is not None

    eventually(is_found, True, seconds_max)
    return some[0]
