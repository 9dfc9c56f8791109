"""The operator's figures that alerts use: objects that are not ready, and keys that wait beyond their time."""

import threading
from typing import Any

from penstock_operator.engine import Key, Store
from penstock_operator.engine.backlog import Backlog
from penstock_operator.engine.lanes import Lanes
from penstock_operator.links.counts import Counts


def manifest(kind: str, name: str, *conditions: tuple[str, str, str], namespace: str = "shop") -> dict[str, Any]:
    says = [{"type": type_, "status": status, "reason": reason} for type_, status, reason in conditions]
    metadata = {"name": name, "namespace": namespace, "uid": f"{kind}-{name}", "resourceVersion": "1"}
    return {"kind": kind, "metadata": metadata, "spec": {}, "status": {"conditions": says}}


def page(store: Store) -> str:
    counts = Counts()
    counts.read(lambda: 2.5, store.not_ready)
    return counts.exposition().decode()


def test_objects_that_are_not_ready_are_counted_by_their_reason() -> None:
    store = Store()
    store.put(manifest("Queue", "one", ("Synced", "False", "Mismatch"), ("Ready", "False", "Mismatch")))
    store.put(manifest("Queue", "two", ("Ready", "False", "Mismatch")))
    store.put(manifest("Cluster", "mq", ("Ready", "False", "Unschedulable"), namespace="depot"))
    store.put(manifest("Queue", "good", ("Ready", "True", "Synced"), ("Conflict", "False", "None")))
    store.put(manifest("Queue", "new"))

    assert store.not_ready() == {
        ("shop", "Queue", "Mismatch"): 2,
        ("depot", "Cluster", "Unschedulable"): 1,
    }
    series = 'penstock_operator_objects_not_ready{kind="Queue",namespace="shop",reason="Mismatch"} 2.0'
    assert series in page(store)
    assert "penstock_operator_overdue_seconds 2.5" in page(store)


def test_an_object_that_becomes_ready_or_goes_has_no_series() -> None:
    store = Store()
    store.put(manifest("Queue", "one", ("Ready", "False", "Drift")))
    store.put(manifest("Queue", "two", ("Ready", "False", "Drift")))

    later = manifest("Queue", "one", ("Ready", "True", "Synced"))
    later["metadata"]["resourceVersion"] = "2"
    store.put(later)
    store.drop(Key("Queue", "shop", "two"))

    assert "penstock_operator_objects_not_ready{" not in page(store)


def test_the_key_that_was_due_first_counts_also_while_a_worker_has_it() -> None:
    backlog = Backlog()
    assert backlog.overdue(100.0) == 0.0

    backlog.add(Key("Queue", "shop", "later"), 200.0)
    assert backlog.overdue(100.0) == 0.0

    backlog.add(Key("Queue", "shop", "one"), 90.0)
    assert backlog.take(95.0) == Key("Queue", "shop", "one")
    assert backlog.overdue(100.0) == 0.0

    backlog.add(Key("Queue", "shop", "one"), 96.0)
    assert backlog.overdue(100.0) == 4.0


def test_keys_behind_workers_that_hang_are_overdue() -> None:
    release, taken = threading.Event(), threading.Event()

    def hang(key: Key, attempts: int) -> None:
        taken.set()
        release.wait(30)

    lanes = Lanes(hang, Counts(), 1, lambda: 1.0)
    lanes.start()
    lanes.add(Key("Queue", "shop", "hangs"))
    assert taken.wait(30)
    lanes.add(Key("Queue", "shop", "behind"), -700.0)

    assert lanes.overdue() >= 700.0
    release.set()
    lanes.stop(10)
