"""`LagListener`: logs and publishes how many rows stream queries are behind, after each micro-batch.

Spark calls it on the driver, also with Spark Connect. It asks the broker nothing: the figures are in Spark's own
progress. An error here ends no query.
"""

import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from penstock.spark.errors import OptionError
from penstock.spark.lags import PartitionLag, described, lags_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["LagListener"]

_log = logging.getLogger("penstock")

LABELS = ("query", "stream", "partition")


class LagListener(StreamingQueryListener):  # type: ignore[misc]
    """Listener for `spark.streams.addListener`. Add it before the queries start.

    It logs a line a batch with the logger `penstock`, level INFO. With `port` it serves a gauge for Prometheus at
    `http://ADDRESS:PORT/metrics`; with `registry` the gauge is in that registry, and you serve it.
    """

    def __init__(
        self, port: int | None = None, address: str = "127.0.0.1", registry: "CollectorRegistry | None" = None
    ) -> None:
        self._gauge: Any = None
        self._server: Any = None
        # The labels of each query, by its id: they are removed with it.
        self._shown: dict[str, set[tuple[str, str, str]]] = {}
        self._names: dict[str, str] = {}
        if port is not None or registry is not None:
            self._gauge, self._server = published(registry, port, address)

    def close(self) -> None:
        """Stop serving; after `spark.streams.removeListener`."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (named by Spark)
        self._names[str(event.id)] = event.name or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        lags = lags_of((source.endOffset, source.latestOffset) for source in progress.sources)
        if not lags:
            return
        query = str(progress.id)
        name = self._names.setdefault(query, progress.name or query)
        _log.info("query '%s', batch %s: %s", name, progress.batchId, described(lags))
        self._show(query, name, lags)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing: the last batch's lag stands."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        query = str(event.id)
        self._names.pop(query, None)
        for labels in self._shown.pop(query, set()):
            self._gauge.remove(*labels)

    def _show(self, query: str, name: str, lags: list[PartitionLag]) -> None:
        if self._gauge is None:
            return
        found = {(name, lag.stream, lag.partition): lag.rows for lag in lags}
        for labels in self._shown.get(query, set()) - found.keys():
            self._gauge.remove(*labels)
        for labels, rows in found.items():
            self._gauge.labels(*labels).set(rows)
        self._shown[query] = set(found)


def published(registry: "CollectorRegistry | None", port: int | None, address: str) -> tuple[Any, Any]:
    """Return the gauge, and the server of its registry when a port is given.

    Raises OptionError without the library, and when the port cannot be used.
    """
    try:
        from prometheus_client import CollectorRegistry, Gauge, start_http_server
    except ImportError as error:
        raise OptionError("metrics need prometheus-client; install 'penstock-client[metrics]'") from error
    registry = registry if registry is not None else CollectorRegistry()
    gauge = Gauge("penstock_spark_lag_rows", "Rows that a Spark query has not processed.", LABELS, registry=registry)
    if port is None:
        return gauge, None
    try:
        return gauge, start_http_server(port, address, registry)[0]
    except (OSError, OverflowError) as error:
        registry.unregister(gauge)
        reason = getattr(error, "strerror", None) or error
        raise OptionError(
            f"metrics cannot be served at {address}:{port}: {reason}; choose another port, or stop the program that "
            "uses it"
        ) from None
