"""Several watched namespaces: one without the operator's role stops no other, and is not taken for empty."""

from typing import Any

import pytest

from penstock_operator.engine import Key
from penstock_operator.links import ApiError
from support.admin_fake import FakeBroker
from support.operator_world import OperatorWorld

MQ = {"name": "mq", "namespace": "default"}


@pytest.fixture
def world() -> OperatorWorld:
    made = OperatorWorld(("default", "shop", "rival"))
    made.start_cluster()
    for name in ("default", "shop", "rival"):
        metadata = {"name": name, "namespace": "", "labels": {"tenant": "yes"}}
        made.kubernetes.add({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    admit(made, "All")
    return made


def admit(world: OperatorWorld, which: str) -> None:
    world.kubernetes.change("Cluster", "mq", {"topology": {"allowedNamespaces": {"from": which}}})
    world.settle()


def broker(world: OperatorWorld) -> FakeBroker:
    assert world.broker is not None
    return world.broker


def apply(world: OperatorWorld, kind: str, name: str, namespace: str, **spec: Any) -> None:
    world.apply(kind, name, {"clusterRef": MQ, "name": name, **spec}, namespace=namespace)
    world.settle()


def reason(world: OperatorWorld, kind: str, name: str, namespace: str) -> str:
    found = world.kubernetes.get(kind, name, namespace) or {}
    conditions = found.get("status", {}).get("conditions", [])
    return next((str(each["reason"]) for each in conditions if each["type"] == "Ready"), "")


def take_role(world: OperatorWorld, namespace: str) -> None:
    """Take the operator's role away, as anyone can who administers the namespace."""
    world.kubernetes.namespaces_forbidden.add(namespace)


def test_the_others_are_listed_and_the_problem_is_told(world: OperatorWorld) -> None:
    apply(world, "Queue", "q", "rival")
    take_role(world, "rival")

    world.census.take()

    assert "queues in namespace 'rival' cannot be listed" in world.census.problem
    assert world.store.get(Key("Queue", "rival", "q")) is not None, "it is not taken for gone"


def test_without_a_role_anywhere_nothing_is_listed(world: OperatorWorld) -> None:
    for namespace in ("default", "shop", "rival"):
        take_role(world, namespace)

    with pytest.raises(ApiError):
        world.census.take()


def test_a_namespace_that_is_gone_is_empty_and_no_problem(world: OperatorWorld) -> None:
    apply(world, "Queue", "q", "rival")
    take_role(world, "rival")
    world.kubernetes.remove("Namespace", "rival", "")

    world.census.take()

    assert world.census.problem == ""
    assert world.store.get(Key("Queue", "rival", "q")) is None


@pytest.mark.parametrize("which", ["All", "Same"])
def test_a_deletion_waits_only_for_namespaces_whose_objects_might_claim_the_thing(
    world: OperatorWorld, which: str
) -> None:
    apply(world, "Queue", "orders", "default", deletionPolicy="Delete")
    admit(world, which)
    take_role(world, "rival")

    world.kubernetes.remove("Queue", "orders")
    world.settle()

    if which == "Same":
        assert world.kubernetes.get("Queue", "orders") is None
        assert "orders" not in broker(world).vhosts["/"]["queues"]
        return
    assert reason(world, "Queue", "orders", "default") == "NamespaceNotListed"
    assert "orders" in broker(world).vhosts["/"]["queues"]
    world.kubernetes.namespaces_forbidden.clear()
    world.census.take()
    world.look_again()
    assert world.kubernetes.get("Queue", "orders") is None


def test_an_object_whose_cluster_cannot_be_listed_waits(world: OperatorWorld) -> None:
    apply(world, "User", "web", "shop")
    world.stop()
    take_role(world, "default")
    world.start(["User", "Namespace"])
    world.kubernetes.remove("User", "web", "shop")
    world.settle()

    assert reason(world, "User", "web", "shop") == "NamespaceNotListed"
    assert "web" in broker(world).passwords
