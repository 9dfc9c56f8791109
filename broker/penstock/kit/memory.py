"""Keeps the broker small. Large blocks come from the system one by one and go back when they are freed: without this
glibc keeps, after the first large block was freed, tens of megabytes per thread that once checked a password. Small
ones it keeps: ten thousand connections leave a hundred megabytes, and the next ten thousand fifty more. So what a burst
left is given back soon after."""

import asyncio
import ctypes
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Final

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_STATM = Path("/proc/self/statm")
LARGE_BYTES = 4 * 1024 * 1024  # above what the message path allocates and frees all the time
TRIM_BYTES = 8 * 1024 * 1024
LOOK_SECONDS: Final = 10.0
ROOM_BYTES: Final = 32 * 1024 * 1024


def return_large_blocks() -> None:
    """To be called once, before threads start. Where there is no glibc it does nothing."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    set_option(_M_MMAP_THRESHOLD, LARGE_BYTES)  # setting one of them also stops glibc from moving it
    set_option(_M_TRIM_THRESHOLD, TRIM_BYTES)


def trim() -> None:
    """Gives back what was freed."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return


def private_bytes() -> int:
    """What the process holds that is no file's: mapped segments are the page cache's."""
    _, resident, of_files, *_ = _STATM.read_text().split()
    return (int(resident) - int(of_files)) * mmap.PAGESIZE


async def trim_now_and_then(
    held: Callable[[], int] = private_bytes, give_back: Callable[[], None] = trim, look_seconds: float = LOOK_SECONDS
) -> None:
    """Until it is cancelled. From outside what was freed looks like what is in use, so a broker that holds `ROOM_BYTES`
    more than when this began is trimmed at each look: less than a millisecond where there is nothing to give back."""
    small = held() + ROOM_BYTES
    while True:
        await asyncio.sleep(look_seconds)
        if held() > small:
            await asyncio.to_thread(give_back)
