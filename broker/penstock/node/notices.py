"""Puts what the engine has to say into the broker's log: damage, a full disk. The engine keeps its lines until they are
asked for, so that none of its threads ever waits for a log. It does not know what they mean."""

import asyncio
from typing import Final, Protocol

from penstock.kit.logging import logger
from penstock.kit.tasks import spawn

LISTEN_SECONDS: Final = 0.5
_log = logger("engine")


class Speaker(Protocol):
    """The part of the native engine that is asked here."""

    def take_notices(self) -> list[tuple[bool, str]]: ...


def listen(engine: Speaker) -> "asyncio.Task[None]":
    """Until it is cancelled. What waits already is logged at once."""
    log_notices(engine)
    return spawn(_listen(engine), name="engine's notices")


def log_notices(engine: Speaker) -> None:
    for is_warning, text in engine.take_notices():
        if is_warning:
            _log.warning(text)
        else:
            _log.info(text)


async def _listen(engine: Speaker) -> None:
    try:
        while True:
            await asyncio.sleep(LISTEN_SECONDS)
            log_notices(engine)
    finally:
        log_notices(engine)
