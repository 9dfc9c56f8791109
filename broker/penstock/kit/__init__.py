"""Clock, tasks, threads, logs and bounds that all packages share."""

from penstock.kit.clock import Clock, SystemClock
from penstock.kit.tasks import spawn

__all__ = ["Clock", "SystemClock", "spawn"]
