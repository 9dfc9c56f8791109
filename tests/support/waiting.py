"""Waiting for what another process does soon: ask again until the answer is the expected one, within a bound.

For effects that nobody announces (a broker that notices a closed connection), never in place of an answer that exists.
"""

import threading
from collections.abc import Callable

SECONDS_MAX = 10
STEP_SECONDS = 0.02


def eventually(read: Callable[[], object], expected: object, seconds_max: float = SECONDS_MAX) -> None:
    """Returns once `read()` gives `expected`; fails with the last answer otherwise."""
    never = threading.Event()
    found = read()
    for _ in range(int(seconds_max / STEP_SECONDS)):
        if found == expected:
            return
        never.wait(STEP_SECONDS)
        found = read()
    assert found == expected, f"still not so after {seconds_max} s"
