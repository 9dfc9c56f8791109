"""Lowers the priority of threads that compute for long.

Such a thread gets the processor time that others leave, and yields at once when one of them wakes up. Without this a
flood of wrong passwords costs every thread on the same core the scheduler's slice of several milliseconds, again and
again.
"""

import os
from contextlib import suppress


def give_way() -> None:
    """Lower the priority of the calling thread, at its start. Where a sandbox forbids it, nothing changes."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
