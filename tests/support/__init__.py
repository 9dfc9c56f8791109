"""What several suites share: a broker as a process of its own, and waiting for what it does."""

from support.broker import Broker, BrokerError
from support.waiting import eventually

__all__ = ["Broker", "BrokerError", "eventually"]
