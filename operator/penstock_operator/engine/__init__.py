"""Reconciles the observed state to the desired state, one object at a time, as often as needed."""

from penstock_operator.engine.backlog import Backlog, Key
from penstock_operator.engine.store import Store
from penstock_operator.engine.workers import Workers
from penstock_operator.engine.world import World

__all__ = ["Backlog", "Key", "Store", "Workers", "World"]
