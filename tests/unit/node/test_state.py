"""Status reports of the broker."""

from types import SimpleNamespace

import pytest

from penstock.native import VhostCounts
from penstock.node.state import BrokerState, Phase
from penstock.services.ports import Recovery, ShardTotals


class Clock:
    def __init__(self):
        self.seconds = 100.0

    def monotonic(self):
        return self.seconds

    def now_ms(self):
        return 0


class Engine:
    def metrics(self):
        return {"published_total": 3.0}


def vhost(name, fault=None):
    totals = VhostCounts(ready_count=5, unacked_count=1, lock_wait_ns=500_000_000)
    shards = [VhostCounts(), VhostCounts(ready_count=3)]
    return SimpleNamespace(name=name, fault=fault, queue_count=2, totals=lambda: totals, shard_totals=lambda: shards)


def state_with(*vhosts):
    clock = Clock()
    state = BrokerState("1.0", "node-1", "/data", clock)
    state.opened(Engine(), SimpleNamespace(all=lambda: list(vhosts)), Recovery(ms=1.5, records=7))
    return state, clock


def test_a_broker_that_starts_is_alive_and_neither_started_nor_ready():
    state = BrokerState("1.0", "node-1", "/data", Clock())

    assert state.reason_not_started() == state.reason_not_ready() == "the broker is starting"
    assert state.reason_not_live() == ""
    assert state.metrics() == {}
    assert state.vhost_totals() == []


def test_a_broker_that_stops_has_started_and_is_not_ready():
    state, _ = state_with()

    state.move(Phase.READY)
    assert state.reason_not_ready() == ""
    state.move(Phase.STOPPING)

    assert state.reason_not_started() == ""
    assert state.reason_not_ready() == "the broker is stopping"
    assert state.reason_not_live() == ""


def test_a_broker_never_comes_back_from_a_stop():
    state, _ = state_with()
    state.move(Phase.STOPPING)

    with pytest.raises(AssertionError):
        state.move(Phase.READY)


def test_a_vhost_that_failed_asks_for_a_restart():
    state, _ = state_with(vhost("a"), vhost("b", "no sync"))
    state.move(Phase.READY)

    assert state.reason_not_live() == "vhost 'b' has stopped: no sync"


def test_the_state_counts_from_the_start():
    state, clock = state_with(vhost("a"))
    clock.seconds += 12

    now = state.state()

    assert now.uptime_seconds == 12
    assert now.resident_bytes > 1_000_000
    assert now.cpu_seconds > 0
    assert (now.recovery.ms, now.recovery.records) == (1.5, 7)
    (totals,) = state.vhost_totals()
    assert (totals.name, totals.queue_count, totals.ready_count) == ("a", 2, 5)
    assert totals.shards == (ShardTotals(), ShardTotals(3))
    assert totals.lock_wait_seconds == 0.5
