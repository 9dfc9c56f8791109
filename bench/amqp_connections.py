"""Connections over AMQP: what idle ones cost, and how many are opened a second."""

import asyncio
import time
from contextlib import AsyncExitStack

from bench.amqp_link import Link
from bench.measure import Load

__all__ = ["idle_connections", "opened_connections"]

IDLE_COUNT = 10_000
OPENED_AT_ONCE = 50
SETTLING_SECONDS = 3.0


def idle_connections(load: Load, port: int) -> dict[str, float]:
    """Open connections that do nothing; `resident` is the broker's memory for each."""
    return asyncio.run(_idle(load, port))


async def _idle(load: Load, port: int) -> dict[str, float]:
    # The first ones load code and fill caches.
    await _open_and_close(port, OPENED_AT_ONCE)
    before = load.resident_bytes()
    async with AsyncExitStack() as stack:
        for _ in range(IDLE_COUNT // OPENED_AT_ONCE):
            links = [stack.enter_async_context(Link(port)) for _ in range(OPENED_AT_ONCE)]
            await asyncio.gather(*links)
        await asyncio.sleep(SETTLING_SECONDS)
        return {"resident": (load.resident_bytes() - before) / IDLE_COUNT}


def opened_connections(load: Load, port: int) -> dict[str, float]:
    """Open and close connections, a few at the same time, with a password that the broker has checked before."""
    return asyncio.run(_opened(load, port))


async def _opened(load: Load, port: int) -> dict[str, float]:
    await _open_and_close(port, 1)
    started, opened = time.perf_counter(), 0
    figures: dict[str, float] = {}
    with load.counting_cpu(figures, lambda: opened):
        while not load.is_over(started):
            await _open_and_close(port, OPENED_AT_ONCE)
            opened += OPENED_AT_ONCE
    return figures | {"rate": opened / (time.perf_counter() - started)}


async def _open_and_close(port: int, count: int) -> None:
    async def one() -> None:
        async with Link(port):
            pass

    await asyncio.gather(*(one() for _ in range(count)))
