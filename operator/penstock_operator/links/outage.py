"""Logs that the API server does not answer, and that it does again: one line each, however many requests fail.

kopf's watches log every failed request; those lines count here and are dropped, unless they tell of missing rights.
"""

import logging
from collections.abc import Callable
from threading import Lock
from typing import Final

# An outage that comes and goes is logged once in this time.
QUIET_SECONDS: Final = 30.0
FORBIDDEN: Final = "APIForbiddenError"
FAILED: Final = "Request attempt"
_log = logging.getLogger("penstock.operator")


class Outage(logging.Filter):
    """State of the API server as requests find it. Thread-safe; it is also a filter for kopf's log of requests."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._lock = Lock()
        self._since: float | None = None
        self._logged_at = -QUIET_SECONDS

    def began(self, reason: str) -> None:
        """Take note of a request without an answer."""
        now = self._clock()
        with self._lock:
            if self._since is not None:
                return
            self._since = now
            is_quiet = now - self._logged_at < QUIET_SECONDS
            self._logged_at = now
        if not is_quiet:
            _log.warning("the API server does not answer; retrying: %s", reason)

    def ended(self) -> None:
        """Take note of an answer."""
        if self._since is None:
            return
        with self._lock:
            since, self._since = self._since, None
        if since is not None:
            _log.info("the API server answers again after %.0f s", self._clock() - since)

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if not text.startswith(FAILED) or FORBIDDEN in text:
            return True
        self.began(text.partition(" -> ")[2])
        return False
