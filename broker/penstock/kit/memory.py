"""Keeps an idle broker small: large blocks come from the system one by one and go back when they are freed. Without
this glibc keeps, after the first large block was freed, tens of megabytes per thread that once checked a password."""

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
LARGE_BYTES = 4 * 1024 * 1024  # above what the message path allocates and frees all the time
TRIM_BYTES = 8 * 1024 * 1024


def return_large_blocks() -> None:
    """To be called once, before threads start. Where there is no glibc it does nothing."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    set_option(_M_MMAP_THRESHOLD, LARGE_BYTES)  # setting one of them also stops glibc from moving it
    set_option(_M_TRIM_THRESHOLD, TRIM_BYTES)


def trim() -> None:
    """Gives back what the start needed and nothing needs any more."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return
