"""Threads for the work of one vhost that may wait for its disk.

Each vhost has a bounded number of them, so that one whose disk hangs leaves threads to the others.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from penstock.kit.settings import VHOST_THREADS_MAX

T = TypeVar("T")
P = ParamSpec("P")


class VhostThreads:
    """It takes the threads of the event loop's executor."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(VHOST_THREADS_MAX)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what the work returns. A caller that leaves does not end the thread, which keeps its place."""
        await self._places.acquire()
        thread = asyncio.get_running_loop().run_in_executor(None, partial(work, *args, **kwargs))
        thread.add_done_callback(lambda _: self._places.release())
        return await asyncio.shield(thread)
