"""One run of a piece of work for all who want its result at the same time. The work is a task of its own: it goes on
when a waiter is cancelled, and all the others hear of its end. How many may wait, and for how many runs, is
bounded."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from penstock.kit.tasks import spawn
from penstock.model.errors import FaultError, RefusedError

Result = TypeVar("Result")
Work = Callable[[], Awaitable[Result]]


class SingleFlight(Generic[Result]):
    """Work under way, by what it is about."""

    def __init__(self, name: str, waiting_max: int, full: Callable[[], FaultError]) -> None:
        """`full` makes the error that one waiter more than `waiting_max`, or one run more, gets."""
        self._name = name
        self._waiting_max = waiting_max
        self._full = full
        self._waiting_count = 0
        self._under_way: dict[Hashable, asyncio.Future[Result]] = {}

    async def run(self, key: Hashable, work: Work[Result]) -> Result:
        """Return the result of the work under way for the key, or else of this one. Raises what the work raises, and
        the fault of `full` at once when too many wait."""
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
        """Runs whose waiters have left count too, or leaving at once would make any number of them."""
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
        future.exception()  # it counts as seen also when all who waited have left
