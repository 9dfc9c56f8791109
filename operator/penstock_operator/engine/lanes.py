"""Lanes of workers: one for the objects in brokers, one for everything else.

Thousands of queues and users, or a broker that hangs, hold up the first lane and no Cluster. In each lane those of one
broker, or the Clusters of one namespace, leave workers to others.
"""

from collections.abc import Callable, Hashable
from typing import Final

from penstock_operator.api import KINDS
from penstock_operator.engine.backlog import Backlog, Key
from penstock_operator.engine.workers import Reconcile, Workers
from penstock_operator.links.counts import Counts

CLUSTER_WORKERS: Final = 2


class Lanes:
    """All workers of the operator."""

    def __init__(
        self,
        reconcile: Reconcile,
        counts: Counts,
        count: int,
        jitter: Callable[[], float],
        broker_of: Callable[[Key], Hashable] = lambda key: key.namespace,
    ) -> None:
        """Make them; `count` is that of the workers for objects in brokers, and `broker_of` says in which they are."""
        self._topology = Workers(Backlog(jitter, broker_of), reconcile, counts, count, "topology")
        clusters = Backlog(jitter, lambda key: key.namespace)
        self._clusters = Workers(clusters, reconcile, counts, CLUSTER_WORKERS, "cluster")
        self.has_started = False

    def start(self) -> None:
        self.has_started = True
        self._clusters.start()
        self._topology.start()

    def stop(self, seconds: float) -> None:
        """Stop: running reconciles may end, no new one begins."""
        self._clusters.stop(seconds)
        self._topology.stop(seconds)

    def add(self, key: Key, delay: float = 0.0) -> None:
        lane = self._topology if KINDS[key.kind].is_topology else self._clusters
        lane.add(key, delay)

    def overdue(self) -> float:
        """Return how long the key that was due first in any lane has waited."""
        return max(self._topology.overdue(), self._clusters.overdue())

    @property
    def last_turn(self) -> float:
        """Return the time since which all lanes have made progress."""
        return min(self._topology.last_turn, self._clusters.last_turn)
