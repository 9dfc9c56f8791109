"""Namespaces that share a Cluster: no object of one removes or holds up what an object of another owns."""

import base64
from typing import Any

import pytest

from penstock_operator.engine import Key
from support.admin_fake import FakeBroker
from support.operator_world import OperatorWorld

MQ = {"name": "mq", "namespace": "default"}
MARK = ["penstock.dev/cleanup"]


@pytest.fixture
def world() -> OperatorWorld:
    """Return a Cluster in the namespace `default` that takes objects from `shop` and `rival`, and from no other."""
    made = OperatorWorld()
    made.start_cluster()
    for name in ("shop", "rival"):
        metadata = {"name": name, "namespace": "", "labels": {"tenant": "yes"}}
        made.kubernetes.add({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    allowed = {"from": "Selector", "matchLabels": {"tenant": "yes"}}
    made.kubernetes.change("Cluster", "mq", {"topology": {"allowedNamespaces": allowed}})
    made.settle()
    return made


def broker(world: OperatorWorld) -> FakeBroker:
    assert world.broker is not None
    return world.broker


def apply(world: OperatorWorld, kind: str, name: str, namespace: str, spec: dict[str, Any], **metadata: Any) -> None:
    world.apply(kind, name, {"clusterRef": MQ, **spec}, namespace=namespace, **metadata)
    world.settle()


def reason(world: OperatorWorld, kind: str, name: str, namespace: str) -> str:
    found = world.kubernetes.get(kind, name, namespace) or {}
    conditions = found.get("status", {}).get("conditions", [])
    return next((str(each["reason"]) for each in conditions if each["type"] == "Ready"), "")


def remove(world: OperatorWorld, kind: str, name: str, namespace: str) -> None:
    world.kubernetes.remove(kind, name, namespace)
    world.settle()
    assert world.kubernetes.get(kind, name, namespace) is None, "it waits"


def assert_nothing_was_deleted(world: OperatorWorld) -> None:
    """Check the calls: a thing that its owner makes again is there, but without its messages."""
    assert not [each for each in broker(world).calls if each.startswith("delete")]


# ------------------------------------------------------------ removal


def test_an_object_with_a_mark_that_a_user_wrote_removes_no_queue_of_another_owner(world: OperatorWorld) -> None:
    """The owner says `adopt: false`, so that it would not take the queue over."""
    apply(world, "Queue", "orders", "shop", {"name": "orders", "adopt": False})
    apply(world, "Queue", "theirs", "rival", {"name": "orders", "deletionPolicy": "Delete"}, finalizers=MARK)

    remove(world, "Queue", "theirs", "rival")

    assert_nothing_was_deleted(world)


@pytest.mark.parametrize(
    ("more", "annotations"),
    [({"preventUpdate": True}, {}), ({"adopt": False}, {}), ({}, {"penstock.dev/paused": "true"})],
)
def test_an_object_with_a_mark_that_a_user_wrote_removes_no_user_of_another_owner(
    world: OperatorWorld, more: dict[str, Any], annotations: dict[str, str]
) -> None:
    apply(world, "User", "web", "shop", {"name": "web", **more})
    world.kubernetes.edit("User", "web", {"metadata": {"annotations": annotations}}, "shop")
    apply(world, "User", "theirs", "rival", {"name": "web"}, finalizers=MARK)

    remove(world, "User", "theirs", "rival")

    assert_nothing_was_deleted(world)


def test_a_former_owner_removes_nothing_that_another_object_has_taken_over(world: OperatorWorld) -> None:
    apply(world, "Queue", "theirs", "rival", {"name": "orders", "deletionPolicy": "Delete"})
    labels = {"metadata": {"labels": {"tenant": "no"}}}
    world.kubernetes.edit("Namespace", "rival", labels, "")
    world.settle()
    apply(world, "Queue", "orders", "shop", {"name": "orders"})
    world.kubernetes.change("Queue", "orders", {"adopt": False}, "shop")
    world.settle()

    remove(world, "Queue", "theirs", "rival")

    assert_nothing_was_deleted(world)


# ------------------------------------------------------------ virtual hosts


def test_a_namespace_that_is_not_allowed_holds_up_no_virtual_host(world: OperatorWorld) -> None:
    apply(world, "VHost", "shop", "shop", {"name": "shop", "deletionPolicy": "Delete"})
    apply(world, "Queue", "hold", "elsewhere", {"name": "q", "vhost": "shop"})

    remove(world, "VHost", "shop", "shop")

    assert "shop" not in broker(world).vhosts


def test_a_namespace_that_is_no_longer_allowed_keeps_the_queues_that_it_owned(world: OperatorWorld) -> None:
    apply(world, "VHost", "shop", "shop", {"name": "shop", "deletionPolicy": "Delete"})
    apply(world, "Queue", "q", "rival", {"name": "q", "vhost": "shop"})
    world.kubernetes.edit("Namespace", "rival", {"metadata": {"labels": {"tenant": "no"}}}, "")
    world.settle()

    world.kubernetes.remove("VHost", "shop", "shop")
    world.settle()

    assert "q" in broker(world).vhosts["shop"]["queues"]


@pytest.mark.parametrize("kind", ["Queue", "Stream"])
def test_a_virtual_host_keeps_a_queue_that_no_watch_has_shown_yet(world: OperatorWorld, kind: str) -> None:
    apply(world, "VHost", "shop", "shop", {"name": "shop", "deletionPolicy": "Delete"})
    see, world.kubernetes.on_change = world.kubernetes.on_change, lambda manifest, is_gone: None
    world.apply(kind, "q", {"clusterRef": MQ, "name": "q", "vhost": "shop"}, namespace="rival")
    world.kubernetes.on_change = see

    world.kubernetes.remove("VHost", "shop", "shop")
    world.settle()

    assert "shop" in broker(world).vhosts


def test_a_virtual_host_keeps_a_queue_whose_manifest_has_become_invalid(world: OperatorWorld) -> None:
    """The API server takes any value for an argument, the types do not."""
    apply(world, "VHost", "shop", "shop", {"name": "shop", "deletionPolicy": "Delete"})
    apply(world, "Queue", "q", "rival", {"name": "q", "vhost": "shop"})
    world.kubernetes.change("Queue", "q", {"arguments": {"x-max-length": {"a": 1}}}, "rival")
    world.settle()

    world.kubernetes.remove("VHost", "shop", "shop")
    world.settle()

    assert "q" in broker(world).vhosts["shop"]["queues"]


def test_an_owner_whose_manifest_has_become_invalid_keeps_its_claim(world: OperatorWorld) -> None:
    apply(world, "Queue", "orders", "shop", {"name": "orders"})
    world.kubernetes.change("Queue", "orders", {"arguments": {"x-max-length": {"a": 1}}}, "shop")
    world.settle()
    apply(world, "Queue", "theirs", "rival", {"name": "orders", "deletionPolicy": "Delete"})

    remove(world, "Queue", "theirs", "rival")

    assert_nothing_was_deleted(world)


# ------------------------------------------------------------ what the broker does not take


@pytest.mark.parametrize("content", [b"x" * 100_000, b"x" * 1_025, bytes(range(128, 160))])
def test_a_password_that_no_broker_takes_is_named_and_leaves_the_broker_to_others(
    world: OperatorWorld, content: bytes
) -> None:
    """A log-in with 100,000 bytes fails as if the broker did not answer, which would be left alone for a while."""
    place = {"name": "secret", "namespace": "rival"}
    world.kubernetes.add({"apiVersion": "v1", "kind": "Secret", "metadata": place, "data": {"password": "dGhlaXJz"}})
    apply(world, "User", "web", "rival", {"name": "web", "importCredentialsSecret": {"name": "secret"}})
    data = {"data": {"password": base64.b64encode(content).decode()}}
    world.kubernetes.edit("Secret", "secret", data, "rival")
    broker(world).tried.clear()

    world.look_again()

    assert reason(world, "User", "web", "rival") == "SecretInvalid"
    assert "web" not in broker(world).tried
    assert broker(world).passwords["web"] == "theirs"


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("Policy", {"name": "p", "pattern": "a", "definition": {"deep": [1]}}),
        ("Queue", {"name": "q", "vhost": "\u00e9" * 200, "deletionPolicy": "Delete"}),
    ],
)
def test_what_the_client_cannot_send_is_told_and_can_be_deleted(
    world: OperatorWorld, kind: str, spec: dict[str, Any]
) -> None:
    apply(world, kind, "it", "rival", spec, finalizers=MARK)
    assert reason(world, kind, "it", "rival") == "InvalidArgument"

    remove(world, kind, "it", "rival")


def test_a_secret_that_the_api_server_refuses_is_told(world: OperatorWorld) -> None:
    """A quota of the namespace, for example, or a User whose name leaves no space for that of its Secret."""
    world.kubernetes.kinds_refused.add("Secret")
    apply(world, "User", "web", "rival", {"name": "web"})
    assert reason(world, "User", "web", "rival") == "SecretRefused"

    world.kubernetes.kinds_refused.clear()
    world.look_again()
    assert reason(world, "User", "web", "rival") == "Synced"


def test_a_secret_that_may_not_be_corrected_is_told(world: OperatorWorld) -> None:
    apply(world, "User", "web", "rival", {"name": "web"})
    world.kubernetes.edit("Secret", "web-user-credentials", {"data": {"uri": "eA=="}}, "rival")
    world.kubernetes.kinds_refused.add("Secret")
    world.look_again()

    assert reason(world, "User", "web", "rival") == "SecretRefused"


def test_many_and_long_differences_fit_into_the_status(world: OperatorWorld) -> None:
    """The API server refuses a longer list, and then the object would have no condition at all."""
    broker(world).vhosts["/"]["policies"]["p", False] = ("a", "all", 0, {})
    definition = {f"{'k' * 100_000}{number}": 1 for number in range(40)}
    apply(world, "Policy", "p", "rival", {"name": "p", "pattern": "a", "definition": definition, "preventUpdate": True})

    assert reason(world, "Policy", "p", "rival") == "Drift"
    found = world.kubernetes.get("Policy", "p", "rival") or {}
    assert len(found["status"]["drift"]) == 32
    assert max(len(each) for each in found["status"]["drift"]) <= 256


def test_annotations_of_others_take_no_memory(world: OperatorWorld) -> None:
    """Each object may have 256 KiB of them, and the store has every object."""
    annotations = {"example.com/notes": "x" * 200_000, "penstock.dev/paused": "true"}
    apply(world, "Queue", "q", "rival", {"name": "q"}, annotations=annotations)

    stored = world.store.get(Key("Queue", "rival", "q")) or {}
    assert stored["metadata"]["annotations"] == {"penstock.dev/paused": "true"}
    kept = world.kubernetes.get("Queue", "q", "rival") or {}
    assert kept["metadata"]["annotations"] == annotations
    assert reason(world, "Queue", "q", "rival") == "Paused"


def test_connections_to_virtual_hosts_that_come_and_go_are_closed(world: OperatorWorld) -> None:
    """Each vhost takes a connection of the operator's; the broker has a bound of them for all of its clients."""
    closed = broker(world).closed
    for number in range(3):
        apply(world, "VHost", "v", "rival", {"name": f"v{number}", "deletionPolicy": "Delete"})
        apply(world, "Queue", "q", "rival", {"name": "q", "vhost": f"v{number}", "deletionPolicy": "Delete"})
        remove(world, "Queue", "q", "rival")
        remove(world, "VHost", "v", "rival")
    closed.clear()

    for _ in range(4):
        world.seconds += 300
        world.look_again()
        apply(world, "Queue", "q", "shop", {"name": "q"})

    assert [each for each in closed if each != "/"] == ["v0", "v1", "v2"]
    assert reason(world, "Queue", "q", "shop") == "Synced"
