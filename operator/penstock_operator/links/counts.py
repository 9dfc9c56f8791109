"""Counters for the operator's own /metrics: reconciles, errors, writes, waiting keys, times of backups.

Two figures are read when they are scraped: a stuck operator sets none.
"""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock_operator.links.backup_gauges import BackupGauges

# Namespace, kind and reason.
Place = tuple[str, str, str]


class Counts:
    """Counters with one registry per operator, so that tests have their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.backups = BackupGauges()
        self.registry.register(self.backups)
        self._writes = Counter(
            "penstock_operator_writes", "Writes to the API server.", ["verb", "kind"], registry=self.registry
        )
        self._reads = Counter(
            "penstock_operator_reads",
            "Reads from the API server, beside the watches; a list counts once per page.",
            ["verb", "kind"],
            registry=self.registry,
        )
        self._reconciles = Counter(
            "penstock_operator_reconciles",
            "Reconciles, by how they ended.",
            ["kind", "outcome"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "penstock_operator_reconcile_seconds", "Time of a reconcile.", ["kind"], registry=self.registry
        )
        self._waiting_in: dict[str, int] = {}
        self._waiting = Gauge(
            "penstock_operator_waiting", "Objects that wait to be reconciled.", registry=self.registry
        )

        self._acting = Gauge(
            "penstock_operator_acting", "1 if this operator acts, 0 if another one does.", registry=self.registry
        )
        self._first = Gauge(
            "penstock_operator_first_reconcile_seconds",
            "From the start of the process to the end of its first reconcile; 0 before.",
            registry=self.registry,
        )
        self._overdue = Gauge(
            "penstock_operator_overdue_seconds",
            "How long the object that should have been reconciled first waits beyond its time.",
            registry=self.registry,
        )
        self._not_ready = _NotReady()
        self.registry.register(self._not_ready)

    def read(self, overdue: Callable[[], float], not_ready: Callable[[], Mapping[Place, int]]) -> None:
        """Read these figures at each scrape."""
        self._overdue.set_function(overdue)
        self._not_ready.read = not_ready

    def set_acting(self, acts: bool) -> None:
        self._acting.set(acts)

    def tell_first_reconcile(self, seconds: float) -> None:
        self._first.set(seconds)

    def count_write(self, verb: str, kind: str) -> None:
        self._writes.labels(verb, kind).inc()

    def count_read(self, verb: str, kind: str) -> None:
        self._reads.labels(verb, kind).inc()

    def count_reconcile(self, kind: str, outcome: str, seconds: float) -> None:
        self._reconciles.labels(kind, outcome).inc()
        self._seconds.labels(kind).observe(seconds)

    def set_waiting(self, lane: str, count: int) -> None:
        """Set how many wait in one lane of workers; the metric is their sum."""
        self._waiting_in = {**self._waiting_in, lane: count}
        self._waiting.set(sum(self._waiting_in.values()))

    def exposition(self) -> bytes:
        return generate_latest(self.registry)


class _NotReady(Collector):
    """Objects that are not ready: a series per namespace, kind and reason, while there are any."""

    def __init__(self) -> None:
        self.read: Callable[[], Mapping[Place, int]] = dict

    def collect(self) -> Iterator[Metric]:
        gauge = GaugeMetricFamily(
            "penstock_operator_objects_not_ready",
            "Objects whose condition Ready is False.",
            labels=["namespace", "kind", "reason"],
        )
        for place, count in self.read().items():
            gauge.add_metric(place, count)
        yield gauge
