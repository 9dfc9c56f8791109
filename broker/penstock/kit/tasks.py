"""Tasks that cannot fail silently.

A bug ends the task that owns the state, is logged once, and is passed to the owner's `on_bug`. Only this module catches
everything and starts tasks.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.kit.logging import logger

_log = logger("tasks")
_running: set[asyncio.Task[None]] = set()  # asyncio itself holds tasks only weakly


def spawn(
    work: Coroutine[Any, Any, None], *, name: str, on_bug: Callable[[Exception], None] | None = None
) -> asyncio.Task[None]:
    """Run a coroutine as a task. Cancelling it is no bug; any exception is."""
    task = asyncio.get_running_loop().create_task(_supervised(work, name, on_bug), name=name)
    _running.add(task)
    task.add_done_callback(_running.discard)
    # A task that is cancelled before its first step never awaits it, which makes Python warn.
    task.add_done_callback(lambda _: work.close())
    return task


def log_bugs_of_callbacks(loop: asyncio.AbstractEventLoop) -> None:
    """Log errors of callbacks, which have no owner, like any other bug."""

    def log(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        _log.error("a callback failed", message=context.get("message"), exc_info=context.get("exception"))

    loop.set_exception_handler(log)


async def _supervised(work: Coroutine[Any, Any, None], name: str, on_bug: Callable[[Exception], None] | None) -> None:
    try:
        await work
    except Exception as bug:  # noqa: BLE001 - the supervisor's whole purpose
        _log.error("a task failed", task=name, exc_info=bug)
        if on_bug is not None:
            on_bug(bug)
