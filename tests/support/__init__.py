"""Test support that several suites share: a broker as a process, and waits for its effects."""

from support.broker import Broker, BrokerError
from support.waiting import eventually

__all__ = ["Broker", "BrokerError", "eventually"]
