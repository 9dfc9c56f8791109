"""Threads for work that may wait for a disk.

There are many, so that waits for one disk leave threads for the others. Each user bounds how many of them it takes at
once; a thread is started when none is free, and stays.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from penstock.kit.settings import THREADS_MAX


def use_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Set the threads of `asyncio.to_thread` on this loop. By default a loop has a few more than processors."""
    loop.set_default_executor(ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="waiting"))
