"""Writes the engine's notices into the broker's log.

Notices are corruption, a full disk and, once, the reason why the broker is no longer live. The engine keeps them until
they are taken, so that its threads never wait for a log. This module does not interpret them.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from penstock.kit.logging import logger
from penstock.kit.tasks import spawn
from penstock.native import Notice

LISTEN_SECONDS: Final = 1.0
_log = logger("engine")


class Speaker(Protocol):
    """The part of the native engine that is asked here."""

    def take_notices(self) -> list[Notice]: ...


def listen(engine: Speaker, reason_not_live: Callable[[], str]) -> "asyncio.Task[None]":
    """Log the engine's notices until cancelled, waiting ones at once."""
    log_notices(engine)
    return spawn(_listen(engine, reason_not_live), name="engine's notices")


def log_notices(engine: Speaker) -> None:
    for notice in engine.take_notices():
        if notice.is_warning:
            _log.warning(notice.text)
        else:
            _log.info(notice.text)


async def _listen(engine: Speaker, reason_not_live: Callable[[], str]) -> None:
    told = ""
    try:
        while True:
            await asyncio.sleep(LISTEN_SECONDS)
            log_notices(engine)
            reason = reason_not_live()
            if reason not in {"", told}:
                _log.error(f"{reason}; repair the disk, then restart the broker")
                told = reason
    finally:
        log_notices(engine)
