"""Limits the broker's memory.

Large blocks come from the system one by one and are returned when they are freed. Otherwise glibc keeps, after the
first large block was freed, tens of megabytes per thread that once checked a password. It keeps small blocks: ten
thousand connections leave a hundred megabytes, and the next ten thousand fifty more. So memory left by a burst is
returned soon after it.
"""

import asyncio
import ctypes
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_STATM = Path("/proc/self/statm")
LARGE_BYTES = 4 * 1024 * 1024  # above the block sizes that the message path allocates and frees all the time
TRIM_BYTES = 8 * 1024 * 1024
LOOK_SECONDS: Final = 10.0
ROOM_BYTES: Final = 32 * 1024 * 1024


def return_large_blocks() -> None:
    """Make glibc return large blocks. Call it once, before threads start. Without glibc it does nothing."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    set_option(_M_MMAP_THRESHOLD, LARGE_BYTES)  # setting one of them also stops glibc from moving it
    set_option(_M_TRIM_THRESHOLD, TRIM_BYTES)


def limit_bytes(root: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the memory that the process may use: that of its control group, as in a container, or of the machine."""
    physical = os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # the file is missing, or has the word `max`
            return min(physical, int((root / name).read_text()))
    return physical


def trim() -> None:
    """Return freed memory to the system."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return


def private_bytes() -> int:
    """Return the bytes that the process holds without those of files: mapped segments are page cache."""
    _, resident, of_files, *_ = _STATM.read_text().split()
    return (int(resident) - int(of_files)) * mmap.PAGESIZE


async def trim_now_and_then(
    held: Callable[[], int] = private_bytes, give_back: Callable[[], None] = trim, look_seconds: float = LOOK_SECONDS
) -> None:
    """Trim until cancelled.

    Freed memory cannot be told from used memory from outside. So a broker that holds `ROOM_BYTES` more than at the
    start is trimmed at each check, which takes less than a millisecond when there is nothing to return.
    """
    small = held() + ROOM_BYTES
    while True:
        await asyncio.sleep(look_seconds)
        if held() > small:
            await asyncio.to_thread(give_back)
