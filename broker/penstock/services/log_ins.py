"""Counts failed log-ins and logs them together, so that guessed passwords cannot fill the log.

The first failure of each kind is logged at once, later ones once in LOG_SECONDS, with their number and the last
address.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from penstock.kit.logging import logger
from penstock.model.names import NAME_BYTES_MAX

LOG_SECONDS: Final = 10.0
Later = Callable[[float, Callable[[], None]], object]
_log = logger("log-ins")


class LogIns:
    """Wrong credentials, and log-ins that could not be decided."""

    def __init__(self, later: Later | None = None) -> None:
        self._refused = _Line("log-ins refused", later or _call_later)
        self._undecided = _Line("log-ins could not be decided", later or _call_later)

    def refused(self, user: str, peer: str) -> None:
        """Count wrong credentials. `user` is the name that the client claimed."""
        self._refused.add(user=user[:NAME_BYTES_MAX], peer=peer)

    def undecided(self, reason: str, peer: str) -> None:
        self._undecided.add(reason=reason, peer=peer)

    def counts(self) -> Mapping[str, float]:
        return {"log_ins_refused_total": self._refused.count, "log_ins_undecided_total": self._undecided.count}


class _Line:
    """One kind of failure: its count, and how many are not logged yet."""

    def __init__(self, event: str, later: Later) -> None:
        self.count = 0
        self._event = event
        self._later = later
        self._unlogged = 0
        self._is_quiet = False
        self._last: dict[str, str] = {}

    def add(self, **about: str) -> None:
        self.count += 1
        self._unlogged += 1
        self._last = about
        if not self._is_quiet:
            self._log()

    def _log(self) -> None:
        self._is_quiet = self._unlogged > 0
        if self._is_quiet:
            _log.warning(self._event, count=self._unlogged, **self._last)
            self._unlogged = 0
            self._later(LOG_SECONDS, self._log)


def _call_later(seconds: float, call: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(seconds, call)
