"""Reads the configuration file again while the broker runs.

Settings that may change without a restart apply within seconds; one log line names the others, which wait for a
restart. A file that cannot be used changes nothing. This module does not know the effect of a setting.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.kit.logging import logger
from penstock.node.config import ConfigurationError, Settings

LOOK_SECONDS: Final = 5.0
# The operator for Kubernetes restarts the broker for all others: a test compares.
HOT: Final = frozenset({"log_level", "drain_seconds"})
_log = logger("node")


class Reloading:
    """`load` reads the settings as the start did; `take` gets the settings in force from then on."""

    def __init__(self, settings: Settings, load: Callable[[], Settings], take: Callable[[Settings], None]) -> None:
        self._asked = self._counting = settings
        self._load = load
        self._take = take
        self._problem = ""

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look(await asyncio.to_thread(self._read))

    def look(self, found: Settings | None) -> None:
        """Apply the settings that changed since the last reading. None: the file could not be read."""
        if found is None or found == self._asked:
            return
        changed = {name for name in Settings.model_fields if getattr(found, name) != getattr(self._asked, name)}
        self._asked = found
        hot, cold = sorted(changed & HOT), sorted(changed - HOT)
        if hot:
            self._counting = self._counting.model_copy(update={name: getattr(found, name) for name in hot})
            self._take(self._counting)
            _log.info("settings reloaded", settings=hot)
        if cold:
            _log.warning("setting change needs a restart", settings=cold)

    def _read(self) -> Settings | None:
        try:
            found = self._load()
        except ConfigurationError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                _log.warning("changed settings are invalid; the previous settings stay in effect", reason=self._problem)
            return None
        self._problem = ""
        return found
