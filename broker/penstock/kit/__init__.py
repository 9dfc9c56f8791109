"""The kit: what touches the running world on behalf of all rooms: time, tasks, logs and the bounds they share."""

from penstock.kit.clock import Clock, SystemClock
from penstock.kit.tasks import spawn

__all__ = ["Clock", "SystemClock", "spawn"]
