"""Metrics about backups, for alerts on an old one. They are read when they are scraped; empty until they are given."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

# Seconds since 1970, by namespace and name.
Times = Mapping[tuple[str, str], float]


class BackupGauges(Collector):
    """Collector of the newest completed Backup of each Cluster, and of the times of each schedule."""

    def __init__(self) -> None:
        self._completed: Callable[[], Times] = dict
        self._following: Callable[[], Times] = dict
        self._overdue: Callable[[], Times] = dict

    def read_by(
        self, completed: Callable[[], Times], following: Callable[[], Times], overdue: Callable[[], Times]
    ) -> None:
        """Read the metrics by these functions from now on."""
        self._completed, self._following, self._overdue = completed, following, overdue

    def collect(self) -> Iterator[Metric]:
        yield _family(
            "penstock_operator_backup_completed_timestamp_seconds",
            "When the newest completed Backup of a Cluster was completed.",
            "cluster",
            self._completed(),
        )
        yield _family(
            "penstock_operator_scheduled_backup_next_timestamp_seconds",
            "When the next Backup of a schedule is due.",
            "name",
            self._following(),
        )
        yield _family(
            "penstock_operator_scheduled_backup_overdue_timestamp_seconds",
            "When the Backup of a schedule that is due, and has not completed, is overdue.",
            "name",
            self._overdue(),
        )


def _family(name: str, about: str, label: str, times: Times) -> Metric:
    found = GaugeMetricFamily(name, about, labels=["namespace", label])
    for place, seconds in sorted(times.items()):
        found.add_metric(list(place), seconds)
    return found
