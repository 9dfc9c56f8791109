"""Threads that compute for long where messages go first: such a thread gets what the others leave, and gives way at
once when one of them wakes up. Without this a flood of wrong passwords costs everybody who shares a core with it the
scheduler's slice of several milliseconds, again and again."""

import os
from contextlib import suppress


def give_way() -> None:
    """To be called by the thread itself, at its start. Where a sandbox forbids it, the thread stays as it is."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
