"""Lanes of workers: for the objects in Clusters, for those in brokers that the operator does not run, and for Clusters.

Thousands of queues and users, or a broker that hangs, hold up no Cluster. A Secret that leads nowhere holds up no
object in a Cluster. In each lane those of one broker, or the Clusters of one namespace, leave workers to others.
"""

from collections.abc import Callable
from typing import Final

from penstock_operator.api import KINDS
from penstock_operator.engine.backlog import Backlog, Key
from penstock_operator.engine.workers import Reconcile, Workers
from penstock_operator.links.counts import Counts

CLUSTER_WORKERS: Final = 2
CONNECTED_WORKERS: Final = 4


class Lanes:
    """All workers of the operator."""

    def __init__(
        self,
        reconcile: Reconcile,
        counts: Counts,
        count: int,
        jitter: Callable[[], float],
        broker_of: Callable[[Key], Key] = lambda key: Key("Cluster", key.namespace, ""),
    ) -> None:
        """Make them; `count` is that of the workers for objects in Clusters.

        `broker_of` returns the Cluster of an object, or the Secret that leads to its broker where there is none.
        """
        self._broker_of = broker_of
        self._connected = Workers(Backlog(jitter, broker_of), reconcile, counts, CONNECTED_WORKERS, "connected")
        self._topology = Workers(Backlog(jitter, broker_of), reconcile, counts, count, "topology")
        clusters = Backlog(jitter, lambda key: key.namespace)
        self._clusters = Workers(clusters, reconcile, counts, CLUSTER_WORKERS, "cluster")
        self.has_started = False

    def start(self) -> None:
        self.has_started = True
        for lane in self._all:
            lane.start()

    def stop(self, seconds: float) -> None:
        """Stop: running reconciles may end, no new one begins."""
        for lane in self._all:
            lane.stop(0.0)
        for lane in self._all:
            lane.stop(seconds / len(self._all))

    def add(self, key: Key, delay: float = 0.0) -> None:
        of_object = self._connected if self._broker_of(key).kind == "Secret" else self._topology
        lane = of_object if KINDS[key.kind].is_topology else self._clusters
        lane.add(key, delay)

    def overdue(self) -> float:
        """Return how long the key that was due first in any lane has waited."""
        return max(lane.overdue() for lane in self._all)

    @property
    def last_turn(self) -> float:
        """Return the time since which the lanes of Clusters and of the objects in them have made progress.

        Brokers that the operator does not run may take all workers of their lane for long, on purpose. A restart, which
        this time decides, would delay all other objects and change nothing.
        """
        return min(self._clusters.last_turn, self._topology.last_turn)

    @property
    def _all(self) -> tuple[Workers, ...]:
        return self._clusters, self._topology, self._connected
