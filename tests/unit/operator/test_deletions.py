"""Deletions of topology objects end, or say what they wait for; an annotation releases them."""

from typing import Any

import pytest

from penstock_operator.engine import Key
from penstock_operator.links import BrokerUnreachableError
from support.admin_fake import FakeBroker
from support.operator_world import OperatorWorld

MQ = {"name": "mq", "namespace": "default"}
RELEASE = {"penstock.dev/release": "true"}


@pytest.fixture
def world() -> OperatorWorld:
    made = OperatorWorld()
    made.start_cluster()
    return made


def broker(world: OperatorWorld) -> FakeBroker:
    assert world.broker is not None
    return world.broker


def reason(world: OperatorWorld, kind: str, name: str) -> str:
    return world.condition(kind, name)[1]


def change_status(world: OperatorWorld, condition: dict[str, str]) -> None:
    """Write one condition of the Cluster, while no operator corrects it."""
    world.kubernetes.patch(
        world.kubernetes.objects["Cluster", "default", "mq"], {"status": {"conditions": [condition]}}
    )
    world.waiting.clear()


def annotate(world: OperatorWorld, kind: str, name: str, annotations: dict[str, str]) -> None:
    found = world.kubernetes.objects[kind, "default", name]
    world.kubernetes.patch(found, {"metadata": {"annotations": annotations}})


def test_a_namespace_that_is_no_longer_allowed_removes_what_it_owned(world: OperatorWorld) -> None:
    world.kubernetes.change("Cluster", "mq", {"topology": {"allowedNamespaces": {"from": "All"}}})
    world.settle()
    world.apply("User", "web", {"name": "web", "clusterRef": MQ}, namespace="shop")
    world.settle()
    world.kubernetes.change("Cluster", "mq", {"topology": {}})
    world.settle()

    world.kubernetes.remove("User", "web", "shop")
    world.settle()

    assert world.kubernetes.get("User", "web", "shop") is None
    assert "web" not in broker(world).passwords


@pytest.mark.parametrize(
    "condition",
    [
        {"type": "Ready", "status": "False", "reason": "CredentialsRejected"},
        {"type": "DataLost", "status": "True", "reason": "VolumeReplaced"},
    ],
    ids=["not ready", "lost its data"],
)
def test_a_cluster_whose_conditions_are_bad_holds_up_no_deletion_that_its_broker_takes(
    world: OperatorWorld, condition: dict[str, str]
) -> None:
    world.kubernetes.change("Cluster", "mq", {"storage": {"lossPolicy": "Manual"}})
    world.apply("User", "web", {"name": "web"})
    world.settle()
    change_status(world, condition)

    world.kubernetes.remove("User", "web")
    world.settle()

    assert world.kubernetes.get("User", "web") is None
    assert "web" not in broker(world).passwords


def test_a_deletion_that_waits_for_the_broker_says_so_and_can_be_released(world: OperatorWorld) -> None:
    world.apply("User", "web", {"name": "web"})
    world.settle()
    broker(world).is_up = False

    world.kubernetes.remove("User", "web")
    world.settle()
    assert reason(world, "User", "web") == "BrokerUnreachable"
    found = world.kubernetes.get("User", "web")
    assert found is not None
    assert "penstock.dev/release" in found["status"]["conditions"][0]["message"]
    assert ("User", "web", "DeletionWaits") in world.kubernetes.events

    annotate(world, "User", "web", RELEASE)
    world.settle()
    assert world.kubernetes.get("User", "web") is None
    assert ("User", "web", "Released") in world.kubernetes.events
    assert "web" in broker(world).passwords


def test_a_user_that_is_deleted_while_the_broker_is_stopped_is_revoked_when_it_starts(world: OperatorWorld) -> None:
    world.apply("User", "web", {"name": "web"})
    world.settle()
    world.kubernetes.change("Cluster", "mq", {"replicas": 0})
    world.settle()
    broker(world).is_up = False

    world.kubernetes.remove("User", "web")
    world.settle()
    assert reason(world, "User", "web") == "ClusterStopped"

    broker(world).is_up = True
    world.kubernetes.change("Cluster", "mq", {"replicas": 1})
    world.settle()
    world.look_again()
    assert world.kubernetes.get("User", "web") is None
    assert "web" not in broker(world).passwords


def test_of_two_that_go_together_one_removes_the_thing(world: OperatorWorld) -> None:
    spec = {"name": "orders", "deletionPolicy": "Delete"}
    world.apply("Queue", "first", spec)
    world.apply("Queue", "second", spec)
    world.settle()

    for name in ("first", "second"):
        world.kubernetes.objects["Queue", "default", name]["metadata"]["finalizers"] = ["penstock.dev/cleanup"]
    for name in ("first", "second"):
        world.kubernetes.remove("Queue", name)
    world.waiting[:] = [Key("Queue", "default", "second"), Key("Queue", "default", "first")]
    world.settle()

    assert world.kubernetes.get("Queue", "first") is None
    assert broker(world).vhosts["/"]["queues"] == {}


def test_a_virtual_host_waits_for_queues_that_are_to_be_retained(world: OperatorWorld) -> None:
    world.apply("VHost", "shop", {"name": "shop", "deletionPolicy": "Delete"})
    world.apply("Queue", "orders", {"name": "orders", "vhost": "shop"})
    world.settle()

    world.kubernetes.remove("VHost", "shop")
    world.settle()
    assert "orders" in broker(world).vhosts["shop"]["queues"]
    assert reason(world, "VHost", "shop") == "HoldsRetained"

    world.kubernetes.change("Queue", "orders", {"deletionPolicy": "Delete"})
    world.settle()
    world.look_again()
    assert world.kubernetes.get("VHost", "shop") is None
    assert "shop" not in broker(world).vhosts


def test_a_cluster_that_the_watch_has_not_shown_yet_is_not_gone(world: OperatorWorld) -> None:
    world.apply("User", "web", {"name": "web"})
    world.settle()
    world.store.drop(Key("Cluster", "default", "mq"))

    world.kubernetes.remove("User", "web")
    world.settle()

    assert world.kubernetes.get("User", "web") is None
    assert "web" not in broker(world).passwords


def test_a_claimant_that_the_watch_has_not_shown_yet_keeps_its_queue(world: OperatorWorld) -> None:
    world.apply("Queue", "first", {"name": "orders", "deletionPolicy": "Delete"})
    world.settle()
    see = world.kubernetes.on_change
    world.kubernetes.on_change = lambda manifest, is_gone: None
    world.apply("Queue", "second", {"name": "orders"})
    world.kubernetes.on_change = see

    world.kubernetes.remove("Queue", "first")
    world.settle()

    assert "delete queue orders" not in broker(world).calls
    assert world.condition("Queue", "second") == ("True", "Synced")


def test_a_claimant_that_went_while_the_watch_was_away_keeps_nothing(world: OperatorWorld) -> None:
    world.apply("User", "web", {"name": "web"})
    world.apply("User", "ghost", {"name": "web"})
    world.settle()
    see = world.kubernetes.on_change
    world.kubernetes.on_change = lambda manifest, is_gone: None
    world.kubernetes.remove("User", "ghost")
    world.kubernetes.on_change = see

    world.kubernetes.remove("User", "web")
    world.settle()

    assert world.kubernetes.get("User", "web") is None
    assert "web" not in broker(world).passwords


def test_what_stays_because_its_manifest_is_no_longer_valid_is_told(world: OperatorWorld) -> None:
    world.apply("User", "web", {"name": "web"})
    world.settle()
    world.kubernetes.change("User", "web", {"tags": ["no-such-tag"]})
    world.settle()

    world.kubernetes.remove("User", "web")
    world.settle()

    assert world.kubernetes.get("User", "web") is None
    assert ("User", "web", "LeftOnBroker") in world.kubernetes.events


# ------------------------------------------------------------ what wakes objects


def test_a_repaired_exchange_has_its_bindings_at_once(world: OperatorWorld) -> None:
    world.apply("Exchange", "shop", {"name": "shop", "type": "topic"})
    world.apply("Queue", "orders", {"name": "orders"})
    world.apply("Binding", "orders", {"source": "shop", "destination": "orders", "routingKey": "#"})
    world.settle()
    broker(world).vhosts["/"]["exchanges"].clear()
    broker(world).vhosts["/"]["bindings"].clear()

    world.add(Key("Exchange", "default", "shop"))
    world.settle()

    assert len(broker(world).vhosts["/"]["bindings"]) == 1


@pytest.mark.parametrize(
    ("namespace", "before", "after"),
    [
        ("default", {"paused": True}, {"paused": False}),
        ("shop", {"topology": {}}, {"topology": {"allowedNamespaces": {"from": "All"}}}),
    ],
)
def test_objects_wake_when_their_cluster_takes_them(
    world: OperatorWorld, namespace: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    world.kubernetes.change("Cluster", "mq", before)
    world.settle()
    world.apply("User", "web", {"name": "web", "clusterRef": MQ}, namespace=namespace)
    world.settle()
    assert "web" not in broker(world).passwords

    world.kubernetes.change("Cluster", "mq", after)
    world.settle()
    assert "web" in broker(world).passwords


def test_a_user_at_its_limit_of_connections_is_in_order(world: OperatorWorld) -> None:
    world.apply("User", "web", {"name": "web", "limits": {"maxConnections": 0}})
    world.settle()
    world.look_again()

    assert world.condition("User", "web") == ("True", "Synced")


# ------------------------------------------------------------ brokers that hang


def test_a_broker_that_does_not_answer_is_left_alone_for_a_while(world: OperatorWorld) -> None:
    """Each call to a broker that hangs takes a worker for seconds; thousands of objects would keep others waiting."""
    for number in range(5):
        world.apply("User", f"u{number}", {"name": f"u{number}"})
    broker(world).is_up = False
    world.world.brokers.forget("mq.default.svc")
    broker(world).tried.clear()
    world.waiting.clear()

    for number in range(5):
        with pytest.raises(BrokerUnreachableError):
            world.reconcile(Key("User", "default", f"u{number}"))

    assert broker(world).refused_count == 1
    assert Key("Cluster", "default", "mq") in world.waiting, "its condition is checked at once"
    broker(world).is_up = True
    world.seconds += 30
    world.settle()
    world.look_again()
    assert world.condition("User", "u4") == ("True", "Synced")


# ------------------------------------------------------------ who takes over


@pytest.mark.parametrize(
    ("tags", "other"),
    [
        (["administrator"], {}),
        ([], {"tags": ["administrator"]}),
        ([], {"adopt": False}),
        ([], {"preventUpdate": True}),
        ([], {"annotations": {"penstock.dev/paused": "true"}}),
    ],
    ids=["it has tags", "another with tags", "no adoption", "no updates", "paused"],
)
def test_a_user_is_revoked_although_another_object_names_it_that_cannot_take_it_over(
    world: OperatorWorld, tags: list[str], other: dict[str, Any]
) -> None:
    world.kubernetes.change("Cluster", "mq", {"topology": {"allowedNamespaces": {"from": "All"}}})
    world.apply("User", "ops", {"name": "ops", "tags": tags})
    world.settle()
    annotations = other.pop("annotations", {})
    world.apply("User", "mine", {"name": "ops", "clusterRef": MQ, **other}, namespace="shop", annotations=annotations)
    world.settle()
    calls = broker(world).calls
    calls.clear()

    world.kubernetes.remove("User", "ops")
    world.settle()

    assert calls[0] == "delete user ops"
    assert world.kubernetes.get("User", "ops") is None
