"""Memory after a burst is returned: checked repeatedly, and only where much is held."""

import asyncio
import ctypes
from collections.abc import Callable
from contextlib import suppress

from penstock.kit.memory import ROOM_BYTES, private_bytes, trim, trim_now_and_then

START = 50_000_000


def trims(*held: int) -> list[int]:
    """Return the checks at which memory was returned; `held` is the memory at each, first at the start."""
    found = iter(held)
    looks, trimmed = 0, []

    async def run() -> None:
        nonlocal looks

        def look() -> int:
            nonlocal looks
            looks += 1
            if (now := next(found, None)) is None:
                watching.cancel()
                return 0
            return now

        watching = asyncio.ensure_future(trim_now_and_then(look, lambda: trimmed.append(looks - 1), 0.0))
        with suppress(asyncio.CancelledError):
            await watching

    asyncio.run(run())
    return trimmed


def test_a_broker_that_stays_small_is_left_alone():
    assert trims(START, START + ROOM_BYTES, START) == []


def test_one_that_grew_is_trimmed_until_it_is_small_again():
    large = START + ROOM_BYTES + 1
    assert trims(START, START, large, large, START, large) == [2, 3, 5]


def test_small_blocks_that_were_freed_go_back():
    allocate: Callable[[int], int] = ctypes.CDLL(None).malloc
    allocate.restype = ctypes.c_void_p  # type: ignore[attr-defined]
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    blocks = [allocate(4_000) for _ in range(20_000)]
    for block in blocks:
        ctypes.memset(block, 1, 4_000)
    last = blocks.pop()  # the topmost block keeps the others
    held = private_bytes()
    for block in blocks:
        free(block)

    trim()

    assert held - private_bytes() > 60_000_000
    free(last)
