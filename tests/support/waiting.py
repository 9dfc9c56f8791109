"""Waits for effects of another process: ask again until the answer is the expected one, within a limit.

It is for effects without a notification (a broker that notices a closed connection), never instead of an existing
answer.
"""

import threading
from collections.abc import Callable

SECONDS_MAX = 10
STEP_SECONDS = 0.02


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
