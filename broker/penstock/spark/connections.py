"""Connections that a process keeps between tasks and micro-batches, one for each broker and credentials.

A worker of Spark runs many tasks, and opening a connection costs more than reading a few rows. Workers are forks, and
gRPC does not survive one: a process uses only connections that it made itself. A connection that failed, or that was
not used for a while, is replaced: something between here and the broker may have forgotten it without a word.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Generic, TypeVar

__all__ = ["CONNECTIONS", "Connections"]

T = TypeVar("T")

# More than one process has brokers and users; the one that was not used for the longest goes first.
CONNECTIONS_MAX = 16
IDLE_SECONDS_MAX = 30.0


@dataclass(slots=True)
class Kept(Generic[T]):
    connection: T
    used_at: float


class Connections(Generic[T]):
    """A connection is closed when its last user lets it go. Threads may share it."""

    def __init__(
        self, most: int = CONNECTIONS_MAX, clock: Callable[[], float] = monotonic, pid: Callable[[], int] = os.getpid
    ) -> None:
        self._most = most
        self._clock = clock
        self._pid = pid
        self._owner = pid()
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, Kept[T]] = OrderedDict()
        # Of the process that this one was forked from: closing them here would wait for threads that are not here.
        self._of_parents: list[OrderedDict[Hashable, Kept[T]]] = []

    def take(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the connection that is kept under a key, or a new one."""
        self._begin_after_fork()
        with self._lock:
            now = self._clock()
            kept = self._kept.pop(key, None)
            if kept is None or now - kept.used_at > IDLE_SECONDS_MAX:
                kept = Kept(make(), now)
            kept.used_at = now
            self._kept[key] = kept
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
            return kept.connection

    def used(self, key: Hashable, connection: T) -> None:
        """Note that a connection works at this moment."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and kept.connection is connection:
                kept.used_at = self._clock()

    def drop(self, key: Hashable, connection: T) -> None:
        """Forget a connection that failed, unless another one has replaced it."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and kept.connection is connection:
                del self._kept[key]

    def _begin_after_fork(self) -> None:
        if self._owner != self._pid():
            # The lock may have been held in the parent.
            self._lock = threading.Lock()
            self._of_parents.append(self._kept)
            self._kept = OrderedDict()
            self._owner = self._pid()


CONNECTIONS: Connections[Any] = Connections()
