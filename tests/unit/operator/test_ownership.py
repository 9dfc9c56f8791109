"""Ownership on a broker: foreign objects stay, no manifest owns the operator's account, claims need permission."""

from typing import Any

import pytest

from support.admin_fake import FakeBroker
from support.operator_world import OperatorWorld

MQ = {"name": "mq", "namespace": "default"}
TOPIC = {"name": "shop", "type": "topic"}


@pytest.fixture
def world() -> OperatorWorld:
    made = OperatorWorld()
    made.start_cluster()
    return made


def broker(world: OperatorWorld) -> FakeBroker:
    assert world.broker is not None
    return world.broker


def allow(world: OperatorWorld, *namespaces: str) -> None:
    """Allow namespaces by a label of theirs."""
    for name in namespaces:
        label = {"tenant": "yes"}
        world.kubernetes.add({"apiVersion": "v1", "kind": "Namespace", "metadata": _cluster_wide(name, label)})
    selector = {"from": "Selector", "matchLabels": {"tenant": "yes"}}
    world.kubernetes.change("Cluster", "mq", {"topology": {"allowedNamespaces": selector}})
    world.settle()


def _cluster_wide(name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "namespace": "", "labels": labels}


def ready(world: OperatorWorld, kind: str, name: str, namespace: str = "default") -> tuple[str, str, str]:
    """Return status, reason and message of the condition Ready."""
    found = world.kubernetes.get(kind, name, namespace)
    assert found is not None
    for each in found.get("status", {}).get("conditions", []):
        if each["type"] == "Ready":
            return each["status"], each["reason"], each["message"]
    return "", "", ""


def remove(world: OperatorWorld, kind: str, name: str, namespace: str = "default") -> None:
    world.kubernetes.remove(kind, name, namespace)
    world.settle()
    assert world.kubernetes.get(kind, name, namespace) is None, "it waits"


# ------------------------------------------------------------ foreign things


@pytest.mark.parametrize("prevents", [False, True])
def test_an_exchange_that_met_a_different_one_leaves_it_when_it_is_deleted(
    world: OperatorWorld, prevents: bool
) -> None:
    exchanges = broker(world).vhosts["/"]["exchanges"]
    exchanges["shop"] = ("fanout", True, False, False, {})

    world.apply("Exchange", "shop", {**TOPIC, "preventUpdate": prevents})
    world.settle()
    assert ready(world, "Exchange", "shop")[1] == ("Drift" if prevents else "Mismatch")
    remove(world, "Exchange", "shop")

    assert "shop" in exchanges


def test_an_exchange_that_was_exchanged_for_a_different_one_leaves_that(world: OperatorWorld) -> None:
    exchanges = broker(world).vhosts["/"]["exchanges"]
    world.apply("Exchange", "shop", TOPIC)
    world.settle()

    exchanges["shop"] = ("fanout", True, False, False, {})
    remove(world, "Exchange", "shop")

    assert "shop" in exchanges


def test_a_queue_that_met_a_different_one_leaves_it_when_it_is_deleted(world: OperatorWorld) -> None:
    queues = broker(world).vhosts["/"]["queues"]
    queues["orders"] = {"durable": True, "auto_delete": False, "arguments": {"x-max-length": 5}}

    world.apply("Queue", "orders", {"name": "orders", "deletionPolicy": "Delete"})
    world.settle()
    remove(world, "Queue", "orders")

    assert "orders" in queues


def test_a_user_that_must_not_be_changed_keeps_its_password_and_stays(world: OperatorWorld) -> None:
    broker(world).passwords["web"], broker(world).tags["web"] = "its own", ()

    world.apply("User", "web", {"name": "web", "preventUpdate": True})
    world.settle()
    assert ready(world, "User", "web")[1] == "Drift"
    assert broker(world).passwords["web"] == "its own"

    remove(world, "User", "web")
    assert broker(world).passwords["web"] == "its own"


def test_taking_over_a_user_is_told(world: OperatorWorld) -> None:
    broker(world).passwords["web"], broker(world).tags["web"] = "its own", ()

    world.apply("User", "web", {"name": "web"})
    world.settle()

    assert broker(world).passwords["web"] == "generated"
    assert ("User", "web", "Adopted") in world.kubernetes.events


def test_what_is_made_and_changed_is_told(world: OperatorWorld) -> None:
    world.apply("Policy", "p", {"name": "p", "pattern": "a", "definition": {"max-length": 1}})
    world.settle()
    world.kubernetes.change("Policy", "p", {"pattern": "b"})
    world.settle()

    told = [reason for kind, _, reason in world.kubernetes.events if kind == "Policy"]
    assert told == ["Created", "Updated"]


def test_the_drift_of_a_status_is_a_list_of_fields(world: OperatorWorld) -> None:
    fields = {"durable": False, "auto_delete": False, "arguments": {"x-max-length": 5}}
    broker(world).vhosts["/"]["queues"]["orders"] = fields

    world.apply("Queue", "orders", {"name": "orders"})
    world.settle()

    found = world.kubernetes.get("Queue", "orders")
    assert found is not None
    assert found["status"]["drift"] == ["durable", "arguments.x-max-length"]


# ------------------------------------------------------------ the operator's own account


@pytest.mark.parametrize("namespace", ["default", "tenant"])
@pytest.mark.parametrize("name", ["admin", "guest"])
def test_no_user_object_touches_the_account_of_the_operator(world: OperatorWorld, name: str, namespace: str) -> None:
    allow(world, "tenant")
    world.apply("User", "mine", {"name": name, "clusterRef": MQ}, namespace=namespace)
    world.settle()

    assert ready(world, "User", "mine", namespace)[1] == "ReservedName"
    assert broker(world).passwords == {"admin": "generated"}
    assert broker(world).tags == {"admin": ("administrator",)}


@pytest.mark.parametrize("finalizers", [[], ["penstock.dev/cleanup"]])
def test_deleting_a_user_object_with_the_name_of_the_operator_leaves_the_account(
    world: OperatorWorld, finalizers: list[str]
) -> None:
    spec = {"name": "admin", "importCredentialsSecret": {"name": "mq-default-user"}}
    world.apply("User", "mine", spec, finalizers=finalizers)
    world.settle()
    remove(world, "User", "mine")

    assert broker(world).passwords == {"admin": "generated"}


@pytest.mark.parametrize("spec", [{"user": "admin"}, {"userRef": {"name": "mine"}}])
def test_no_permission_object_touches_the_account_of_the_operator(world: OperatorWorld, spec: dict[str, Any]) -> None:
    allow(world, "tenant")
    world.apply("User", "mine", {"name": "admin", "clusterRef": MQ}, namespace="tenant")
    world.apply("Permission", "mine", {**spec, "read": "x", "clusterRef": MQ}, namespace="tenant")
    world.settle()
    assert ready(world, "Permission", "mine", "tenant")[1] == "ReservedName"

    remove(world, "Permission", "mine", "tenant")
    assert broker(world).permissions["admin", "/"] == (".*", ".*", ".*")


@pytest.mark.parametrize("tag", ["administrator", "monitoring", "policymaker", "impersonator"])
def test_tags_above_management_need_a_namespace_that_the_cluster_names(world: OperatorWorld, tag: str) -> None:
    allow(world, "tenant")
    world.apply("User", "mine", {"name": "mine", "tags": [tag], "clusterRef": MQ}, namespace="tenant")
    world.settle()
    assert ready(world, "User", "mine", "tenant")[1] == "TagsNotAllowed"
    assert "mine" not in broker(world).tags

    found = world.kubernetes.get("Cluster", "mq")
    assert found is not None
    topology = {**found["spec"]["topology"], "administratorsFrom": {"from": "All"}}
    world.kubernetes.change("Cluster", "mq", {"topology": topology})
    world.settle()
    assert broker(world).tags["mine"] == (tag,)


def test_management_needs_none(world: OperatorWorld) -> None:
    allow(world, "tenant")
    world.apply("User", "mine", {"name": "mine", "tags": ["management"], "clusterRef": MQ}, namespace="tenant")
    world.settle()

    assert broker(world).tags["mine"] == ("management",)


def test_a_tenant_takes_over_no_administrator(world: OperatorWorld) -> None:
    allow(world, "tenant")
    broker(world).passwords["ops"], broker(world).tags["ops"] = "its own", ("administrator",)

    world.apply("User", "ops", {"name": "ops", "clusterRef": MQ}, namespace="tenant")
    world.settle()

    assert ready(world, "User", "ops", "tenant")[1] == "TagsNotAllowed"
    assert broker(world).passwords["ops"] == "its own"


def test_the_cluster_names_the_user_object_that_took_its_account_before(world: OperatorWorld) -> None:
    """An operator of before let a User take the account: it has been in order since."""
    synced = {"lastSyncTime": "2026-01-01T00:00:00Z"}
    made = world.apply("User", "mine", {"name": "admin"}, finalizers=["penstock.dev/cleanup"])
    world.kubernetes.patch(made, {"status": synced}, part="status")
    broker(world).passwords["admin"] = "of the User"
    world.world.brokers.forget("mq.default.svc")

    world.look_again()

    status, reason, message = ready(world, "Cluster", "mq")
    assert (status, reason) == ("False", "CredentialsRejected")
    assert "User 'mine' in namespace 'default'" in message
    remove(world, "User", "mine")
    assert "admin" in broker(world).passwords


# ------------------------------------------------------------ claims


def test_an_object_of_a_namespace_that_is_not_allowed_claims_nothing(world: OperatorWorld) -> None:
    world.apply("User", "squat", {"name": "web", "clusterRef": MQ}, namespace="elsewhere")
    world.apply("User", "web", {"name": "web"})
    world.settle()
    assert ready(world, "User", "squat", "elsewhere")[1] == "NamespaceNotAllowed"
    assert ready(world, "User", "web")[1] == "Synced"

    remove(world, "User", "web")
    assert "web" not in broker(world).passwords


def test_an_object_that_was_never_allowed_deletes_nothing(world: OperatorWorld) -> None:
    broker(world).vhosts["/"]["queues"]["orders"] = {"durable": True, "auto_delete": False, "arguments": {}}
    spec = {"name": "orders", "deletionPolicy": "Delete", "clusterRef": MQ}
    world.apply("Queue", "orders", spec, namespace="elsewhere", finalizers=["penstock.dev/cleanup"])
    world.settle()

    remove(world, "Queue", "orders", "elsewhere")
    assert "orders" in broker(world).vhosts["/"]["queues"]


def test_a_user_by_name_and_by_object_is_the_same_user(world: OperatorWorld) -> None:
    world.apply("Permission", "by-name", {"user": "web", "read": "a"})
    world.apply("Permission", "by-object", {"userRef": {"name": "web"}, "read": "b"})
    world.apply("User", "web", {"name": "web"})
    world.settle()
    world.look_again()
    assert ready(world, "Permission", "by-name")[1] == "Synced"
    assert ready(world, "Permission", "by-object")[1] == "Conflict"

    remove(world, "Permission", "by-object")
    assert broker(world).permissions["web", "/"] == ("", "", "a")


# ------------------------------------------------------------ the default virtual host


def test_the_virtual_host_that_the_operator_logs_in_to_is_not_deleted(world: OperatorWorld) -> None:
    """Without it the operator cannot log in any more, and no object is applied."""
    world.apply("VHost", "default", {"name": "/", "deletionPolicy": "Delete"})
    world.apply("Queue", "orders", {"name": "orders"})
    world.settle()

    remove(world, "VHost", "default")
    world.look_again()

    assert "/" in broker(world).vhosts
    assert ("VHost", "default", "LeftOnBroker") in world.kubernetes.events
    assert ready(world, "Cluster", "mq")[0] == "True"
