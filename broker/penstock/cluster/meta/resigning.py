"""A broker that can decide or apply nothing any more does not go on leading the `meta` shard.

Its replica would lead as before, and every command would wait for this broker until it is started again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from penstock.kit.logging import logger

PAUSE_S: Final = 2.0
"""A hand-over is given up while records come, and this broker may be elected again, so it is asked for again."""
_log = logger("meta")


async def resign_after(
    workers: Sequence[asyncio.Task[None]], hand_over: Callable[[], Awaitable[object]], pause_s: float = PAUSE_S
) -> None:
    """Hand the shard over again and again once one of the workers has ended, until it is cancelled."""
    await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
    _log.error("metadata stopped on this broker: another one leads, if one is in sync; restart this broker")
    while True:
        await hand_over()
        await asyncio.sleep(pause_s)
