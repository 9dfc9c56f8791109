"""The census: nothing is decided before all kinds were listed, and what a watch missed is found."""

import threading
from typing import Any

import pytest

from penstock_operator.__main__ import verdict
from penstock_operator.engine import Key, Store
from penstock_operator.engine.intake import gone, seen
from penstock_operator.links import ApiError
from support.kubernetes_fake import Manifest
from support.operator_world import OperatorWorld


@pytest.fixture
def world() -> OperatorWorld:
    made = OperatorWorld()
    made.start_cluster()
    return made


def blind(world: OperatorWorld) -> None:
    """Take the watches away."""
    world.kubernetes.on_change = lambda manifest, is_gone: None


def test_a_census_is_unhealthy_until_every_kind_is_listed(world: OperatorWorld) -> None:
    assert world.census.problem

    world.kubernetes.kinds_missing.add("Policy")
    with pytest.raises(ApiError):
        world.census.take()
    assert "policies cannot be listed" in world.census.problem

    world.kubernetes.kinds_missing.clear()
    world.census.take()
    assert world.census.problem == ""


@pytest.mark.parametrize("lacks", ["kinds_missing", "kinds_forbidden"])
def test_a_kind_or_a_role_that_is_taken_away_later_is_unhealthy_again(world: OperatorWorld, lacks: str) -> None:
    world.census.take()
    getattr(world.kubernetes, lacks).add("User")

    with pytest.raises(ApiError):
        world.census.take()

    assert "users cannot be listed" in world.census.problem


def test_an_api_server_that_is_away_for_a_while_is_no_fault_of_the_operator(world: OperatorWorld) -> None:
    world.census.take()
    world.kubernetes.is_away = True

    with pytest.raises(ApiError):
        world.census.take()

    assert world.census.problem == ""


def test_namespaces_that_may_not_be_listed_are_no_obstacle(world: OperatorWorld) -> None:
    world.kubernetes.kinds_forbidden.add("Namespace")
    world.census.take()

    assert world.census.problem == ""


def test_the_workers_start_once_and_after_the_first_complete_census(world: OperatorWorld) -> None:
    stopped = threading.Event()
    started: list[list[str]] = []

    def start() -> None:
        started.append(list(world.kubernetes.lists))
        stopped.set()

    world.census.run(stopped, start)

    (listed,) = started
    assert {"Cluster", "Queue", "User", "Permission"} <= set(listed)


def test_a_census_that_fails_is_taken_again(world: OperatorWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread is the only one that starts the workers, and finds what the watches missed."""
    monkeypatch.setattr("penstock_operator.engine.census.RETRY_SECONDS", 0.0)
    stopped, failures = threading.Event(), [KeyError("metadata")]
    read = world.kubernetes.list

    def fail_once(*about: Any, **more: Any) -> list[Manifest]:
        if failures:
            raise failures.pop()
        return read(*about, **more)

    world.kubernetes.list = fail_once  # type: ignore[method-assign]
    world.census.run(stopped, stopped.set)

    assert stopped.is_set()


def test_objects_that_no_watch_has_shown_are_found(world: OperatorWorld) -> None:
    blind(world)
    world.apply("Queue", "orders", {"name": "orders"})

    world.census.take()

    assert world.store.get(Key("Queue", "default", "orders")) is not None
    assert Key("Queue", "default", "orders") in world.waiting


def test_objects_that_went_while_no_watch_looked_wake_who_waited_for_them(world: OperatorWorld) -> None:
    world.apply("Queue", "first", {"name": "orders"}, finalizers=[])
    world.apply("Queue", "second", {"name": "orders"})
    world.settle()
    assert world.condition("Queue", "second") == ("False", "Conflict")
    blind(world)
    world.kubernetes.objects.pop(("Queue", "default", "first"))

    world.census.take()
    world.settle()

    assert world.store.get(Key("Queue", "default", "first")) is None
    assert world.condition("Queue", "second") == ("True", "Synced")


def test_one_list_serves_all_deletions_before_it(world: OperatorWorld) -> None:
    world.kubernetes.lists.clear()
    seen_at = [world.store.tick() for _ in range(3)]
    for moment in seen_at:
        world.census.freshen("Queue", moment)
    assert world.kubernetes.lists == ["Queue"]

    world.census.freshen("Queue", world.store.tick())
    assert world.kubernetes.lists == ["Queue", "Queue"]


def test_users_that_were_deleted_while_the_operator_was_away_are_deleted_on_the_broker(world: OperatorWorld) -> None:
    names = [f"u{number}" for number in range(20)]
    for name in names:
        world.apply("User", name, {"name": name})
    world.settle()
    world.stop()
    for name in names:
        world.kubernetes.remove("User", name)

    world.start(["User"])
    world.settle()

    assert world.broker is not None
    assert [name for name in names if world.kubernetes.get("User", name) is not None] == []
    assert list(world.broker.passwords) == ["admin"]


# ------------------------------------------------------------ intake


def test_labels_of_a_namespace_wake_the_objects_in_it() -> None:
    store = Store()
    queue = {
        "kind": "Queue",
        "metadata": {"name": "q", "namespace": "shop", "uid": "1", "resourceVersion": "1"},
        "spec": {"clusterRef": {"name": "mq"}, "name": "q"},
    }
    namespace = {"kind": "Namespace", "metadata": {"name": "shop", "uid": "2", "resourceVersion": "2"}}
    seen(store, queue)
    seen(store, namespace)

    other = {**namespace, "metadata": {**namespace["metadata"], "labels": {"a": "b"}, "resourceVersion": "3"}}  # type: ignore[dict-item]
    same = {**other, "metadata": {**other["metadata"], "resourceVersion": "4"}}  # type: ignore[dict-item]

    assert seen(store, other) == [Key("Queue", "shop", "q")]
    assert seen(store, same) == []
    assert gone(store, Key("Namespace", "", "shop")) == []


@pytest.mark.parametrize(("problem", "status"), [("", 200), ("queues cannot be listed: not found", 503)])
def test_a_problem_is_an_answer_of_503(problem: str, status: int) -> None:
    assert verdict(problem).status == status


def test_only_objects_of_our_kinds_are_reconciled_when_an_operator_begins_to_act() -> None:
    store = Store()
    for kind, namespace in (("Namespace", ""), ("Secret", "default"), ("Queue", "default")):
        store.put({"kind": kind, "metadata": {"name": "it", "namespace": namespace}, "spec": {}})

    assert store.all() == [Key("Queue", "default", "it")]
