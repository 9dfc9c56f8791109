"""The threads for what may wait for a disk: many, so that those who wait for one disk leave some for the others. Each
user bounds how many of them it takes at once; a thread is started when none is free, and stays."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from penstock.kit.settings import THREADS_MAX


def use_threads(loop: asyncio.AbstractEventLoop) -> None:
    """For `asyncio.to_thread` on this loop. By itself a loop has a few more than there are processors."""
    loop.set_default_executor(ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="waiting"))
