"""The beats of this broker at the coordinator, and the sessions of the others."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from penstock.cluster.coordinator import Coordinator
from penstock.cluster.sessions import BEAT_S, Sessions
from penstock.kit.clock import Clock
from penstock.kit.logging import logger
from penstock.model.errors import StorageError

_log = logger("cluster")
Changed = Callable[[str, bool], None]
"""Takes a broker, and whether its session is alive."""
_NONE: Final[frozenset[str]] = frozenset()


async def keep_beating(
    coordinator: Coordinator, broker: str, boot: int, changed: Changed, clock: Clock, beat_s: float = BEAT_S
) -> None:
    """Beat, and report sessions that ended or go on, until it is cancelled.

    A time without an answer of the coordinator ends no session.
    """
    sessions, ended = Sessions({}), _NONE
    while True:
        try:
            await coordinator.beat(broker, boot)
            beats = await coordinator.beats()
        except StorageError as error:
            _log.warning("no beat", reason=str(error))
            sessions = sessions.anew(clock.monotonic())
        else:
            now = clock.monotonic()
            sessions = sessions.observe(beats, now)
            others = sessions.ended(now) - {broker}
            for name, is_alive in changes(ended, others):
                _log.info("session of a broker", broker=name, is_alive=is_alive)
                changed(name, is_alive)
            ended = others
        await asyncio.sleep(beat_s)


def changes(before: frozenset[str], now: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """Yield the brokers whose session ended, or is alive again, between two looks at the ended ones."""
    yield from ((broker, False) for broker in sorted(now - before))
    yield from ((broker, True) for broker in sorted(before - now))
