"""A question to another broker that callers who wait together share, with its answer or its failure.

Only a question that began after a caller came counts for that caller: an earlier one says nothing about what happened
since. So at most two questions are asked for all callers of a moment.
"""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.cluster.meta.log import NotLeaderError


class SharedQuestion:
    """Invariant: at most one question is being asked."""

    def __init__(self, ask: Callable[[], Awaitable[None]]) -> None:
        self._ask = ask
        self._asking = asyncio.Lock()
        self._begun_count = 0
        self._answered = 0
        """The number of the last question that was answered, of those that have begun."""
        self._failed = 0
        """The number of the last question for which there was no leader."""

    async def answered(self) -> None:
        """Return when a question that began after this call is answered.

        Raises NotLeaderError when there was no leader for it, and other errors of a question that this caller asked.
        """
        begun_count = self._begun_count
        async with self._asking:
            if self._answered > begun_count:
                return
            if self._failed > begun_count:  # asking once more would make all callers wait one after another
                raise NotLeaderError
            self._begun_count += 1
            try:
                await self._ask()
            except NotLeaderError:
                self._failed = self._begun_count
                raise
            self._answered = self._begun_count
