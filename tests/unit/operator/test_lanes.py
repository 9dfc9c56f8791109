"""Lanes of workers: what holds up objects in brokers holds up no Cluster, nor objects in other brokers."""

import threading

from penstock_operator.engine import Key
from penstock_operator.engine.lanes import Lanes
from penstock_operator.links.counts import Counts

SECONDS_MAX = 10


def test_a_cluster_does_not_wait_for_objects_in_brokers() -> None:
    released, reconciled = threading.Event(), threading.Event()

    def reconcile(key: Key, _: int) -> None:
        if key.kind == "Cluster":
            reconciled.set()
        else:
            released.wait(SECONDS_MAX)

    lanes = Lanes(reconcile, Counts(), 2, lambda: 1.0)
    for number in range(20):
        lanes.add(Key("User", "default", f"u{number}"))
    lanes.start()
    lanes.add(Key("Cluster", "default", "mq"))

    assert reconciled.wait(SECONDS_MAX / 2)
    released.set()
    lanes.stop(SECONDS_MAX)


def test_an_object_in_a_cluster_does_not_wait_for_brokers_that_the_operator_does_not_run() -> None:
    released, reconciled = threading.Event(), threading.Event()

    def reconcile(key: Key, _: int) -> None:
        if key.namespace == "stranger":
            released.wait(SECONDS_MAX)
        else:
            reconciled.set()

    lanes = Lanes(
        reconcile,
        Counts(),
        2,
        lambda: 1.0,
        lambda key: Key("Secret" if key.namespace == "stranger" else "Cluster", "", ""),
    )
    for number in range(20):
        lanes.add(Key("User", "stranger", f"u{number}"))
    lanes.start()
    lanes.add(Key("User", "default", "web"))

    assert reconciled.wait(SECONDS_MAX / 2)
    released.set()
    lanes.stop(SECONDS_MAX)


def test_brokers_that_the_operator_does_not_run_do_not_make_its_probe_fail() -> None:
    """Four of them that answered slowly had the operator restarted, again and again."""
    lanes = Lanes(lambda key, attempts: None, Counts(), 2, lambda: 1.0)

    lanes._connected.last_turn = 0.0

    assert lanes.last_turn > 0.0


def test_lanes_that_were_never_started_can_be_stopped() -> None:
    lanes = Lanes(lambda key, attempts: None, Counts(), 2, lambda: 1.0)
    lanes.add(Key("User", "default", "web"))

    lanes.stop(SECONDS_MAX)

    assert not lanes.has_started
