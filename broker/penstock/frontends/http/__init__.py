"""HTTP on the metrics address: health for whoever restarts the broker, figures for whoever watches it."""

from penstock.frontends.http.metrics import MetricsPage
from penstock.frontends.http.server import HttpFrontend

__all__ = ["HttpFrontend", "MetricsPage"]
