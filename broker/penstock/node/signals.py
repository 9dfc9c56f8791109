"""Signals for stopping.

The first SIGTERM or SIGINT asks for an orderly stop; a second one ends the process at once, which loses no confirmed
message.
"""

import asyncio
import os
import signal
from collections.abc import Callable

from penstock.kit.logging import logger

_log = logger("node")
FORCED_EXIT_CODE = 130


def stop_asked(before_exit: Callable[[], object]) -> asyncio.Event:
    """Return an event that the first signal sets. Call it on the running loop's own thread.

    The second signal calls `before_exit` and ends the process.
    """
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if asked.is_set():
            before_exit()
            os._exit(FORCED_EXIT_CODE)
        _log.info("shutting down; send the signal again to force", signal=number.name)
        asked.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    return asked
