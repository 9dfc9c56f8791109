"""Bounds on concurrent work for each key. Later callers wait in order. An unused key takes no memory."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class Turns:
    """At most `most` turns at a time for each key."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._semaphores: dict[Hashable, asyncio.Semaphore] = {}
        self._counts: dict[Hashable, int] = {}

    def __len__(self) -> int:
        """Return how many keys are in use."""
        return len(self._counts)

    @asynccontextmanager
    async def take(self, key: Hashable) -> AsyncIterator[None]:
        """Wait for a turn, and hold it."""
        semaphore = self._semaphores.setdefault(key, asyncio.Semaphore(self._most))
        self._counts[key] = self._counts.get(key, 0) + 1
        try:
            async with semaphore:
                yield
        finally:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key], self._semaphores[key]
