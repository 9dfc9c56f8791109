"""Runs a piece of work once for all callers that want its result at the same time.

The work is a task of its own: it goes on when a waiter is cancelled, and all others get its result. The numbers of
waiters and of runs are bounded.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from penstock.kit.tasks import spawn
from penstock.model.errors import FaultError, RefusedError

Result = TypeVar("Result")
Work = Callable[[], Awaitable[Result]]


class SingleFlight(Generic[Result]):
    """Work under way, by key."""

    def __init__(self, name: str, waiting_max: int, full: Callable[[], FaultError]) -> None:
        """Make a group; `full` makes the error of a waiter above `waiting_max`, or of one run too many."""
        self._name = name
        self._waiting_max = waiting_max
        self._full = full
        self._waiting_count = 0
        self._under_way: dict[Hashable, asyncio.Future[Result]] = {}

    async def run(self, key: Hashable, work: Work[Result]) -> Result:
        """Return the result of the work under way for the key, or else of this one.

        Raises the errors of the work, and the fault of `full` at once when too many wait.
        """
        if self._waiting_count >= self._waiting_max or self._is_one_too_many(key):
            raise self._full()
        self._waiting_count += 1
        try:
            return await asyncio.shield(self.start(key, work))
        finally:
            self._waiting_count -= 1

    def start(self, key: Hashable, work: Work[Result]) -> "asyncio.Future[Result]":
        """Begin the work unless it is under way, without waiting for it."""
        future = self._under_way.get(key)
        if future is None:
            future = asyncio.get_running_loop().create_future()
            self._under_way[key] = future
            spawn(self._do(key, work, future), name=self._name, on_bug=lambda bug: _fail(future, bug))
        return future

    def _is_one_too_many(self, key: Hashable) -> bool:
        """Return whether a limit is reached.

        Runs without waiters count, or leaving at once would start any number of them.
        """
        return key not in self._under_way and len(self._under_way) >= self._waiting_max

    async def _do(self, key: Hashable, work: Work[Result], future: "asyncio.Future[Result]") -> None:
        try:
            future.set_result(await work())
        except (RefusedError, FaultError) as error:
            _fail(future, error)
        except asyncio.CancelledError:
            future.cancel()
            raise
        finally:
            del self._under_way[key]


def _fail(future: "asyncio.Future[Result]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # counts as retrieved even when all waiters have left
