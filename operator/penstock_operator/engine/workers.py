"""Worker threads that take keys from the backlog and reconcile them.

A reconcile that fails is logged once and retried later; no error ends a thread. Adding a key never waits for a
reconcile.
"""

import logging
import threading
import time
from collections.abc import Callable

from penstock_operator.engine.backlog import Backlog, Key
from penstock_operator.links import ApiError, BrokerUnreachableError
from penstock_operator.links.counts import Counts

_log = logging.getLogger("penstock.operator")
# Faults of the environment, logged in one line. Anything else is a bug and keeps its traceback.
FAULTS = (ApiError, BrokerUnreachableError)
# The key, and how often in a row it failed.
Reconcile = Callable[[Key, int], float | None]


class Later(Exception):
    """Retry as after a failure, without a log line."""


class Workers:
    """Workers that run between `start` and `stop`."""

    def __init__(
        self, backlog: Backlog, reconcile: Reconcile, counts: Counts, count: int, lane: str = "reconcile"
    ) -> None:
        self._lane = lane
        self._backlog = backlog
        self._reconcile = reconcile
        self._counts = counts
        self._changed = threading.Condition()
        self._is_stopped = False
        self._threads = [threading.Thread(target=self._run, name=f"{lane}-{n}", daemon=True) for n in range(count)]
        self.last_turn = time.monotonic()

    def start(self) -> None:
        self.last_turn = time.monotonic()
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float) -> None:
        """Stop: running reconciles may end, no new one begins."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        until = time.monotonic() + seconds
        for thread in self._threads:
            if thread.ident is None:
                continue  # it was never started
            thread.join(max(0.0, until - time.monotonic()))

    def add(self, key: Key, delay: float = 0.0) -> None:
        with self._changed:
            self._backlog.add(key, time.monotonic() + delay)
            self._changed.notify()

    def overdue(self) -> float:
        """Return how long the key that was due first has waited."""
        with self._changed:
            return self._backlog.overdue(time.monotonic())

    def _run(self) -> None:
        while (key := self._next()) is not None:
            started = time.monotonic()
            again, outcome = self._attempt(key, self._backlog.attempts(key))
            now = time.monotonic()
            self._counts.count_reconcile(key.kind, outcome, now - started)
            with self._changed:
                if outcome == "done":
                    self._backlog.finished(key, now, again)
                else:
                    self._backlog.failed(key, now)
                self._changed.notify()

    def _next(self) -> Key | None:
        with self._changed:
            while not self._is_stopped:
                self.last_turn = now = time.monotonic()
                self._counts.set_waiting(self._lane, len(self._backlog))
                key = self._backlog.take(now)
                if key is not None:
                    return key
                at = self._backlog.next_at()
                # A key that is due and taken by another thread is announced when that thread has finished.
                wait = 5.0 if at is None or at <= now else min(5.0, at - now)
                self._changed.wait(wait)
            return None

    def _attempt(self, key: Key, attempts: int) -> tuple[float | None, str]:
        try:
            return self._reconcile(key, attempts), "done"
        except Later:
            return None, "later"
        except FAULTS as error:
            if not (isinstance(error, ApiError) and error.is_outage):  # the link logs an outage, once for all objects
                _log.warning("%s %s/%s: %s", key.kind, key.namespace, key.name, error)
            return None, "fault"
        except Exception:  # noqa: BLE001 - the outermost loop: a bug in one object must not stop the others
            _log.exception("%s %s/%s: a bug", key.kind, key.namespace, key.name)
            return None, "bug"
