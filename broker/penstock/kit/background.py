"""Lowers the weight of threads that compute for long.

Such a thread gets about a tenth of a processor that other threads want, and all of one that they leave. Without this a
flood of wrong passwords costs every thread on the same core the scheduler's slice of several milliseconds, again and
again. The tenth is a minimum: with idle priority, log-ins would stop on a machine whose processors are all busy.
"""

import os
from contextlib import suppress

# The kernel's weight of a thread is 1,024 at nice 0 and 110 at nice 10.
NICE_STEPS = 10


def give_way() -> None:
    """Lower the weight of the calling thread, at its start. Where a sandbox forbids it, nothing changes."""
    with suppress(OSError):
        # Such a thread never interrupts another one when it wakes up.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        # On Linux this is of the calling thread alone.
        os.nice(NICE_STEPS)
