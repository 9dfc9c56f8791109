"""Topology objects: the reconcile of all kinds but Cluster."""

import pytest

from penstock_operator.engine import Key
from support.admin_fake import FakeBroker
from support.operator_world import OperatorWorld

ORDERS = {"name": "orders", "vhost": "/"}


@pytest.fixture
def world() -> OperatorWorld:
    made = OperatorWorld()
    made.start_cluster()
    return made


def broker(world: OperatorWorld) -> FakeBroker:
    assert world.broker is not None
    return world.broker


def queues(world: OperatorWorld, vhost: str = "/") -> list[str]:
    return list(broker(world).vhosts[vhost]["queues"])


def test_a_queue_that_is_applied_is_declared_and_ready(world: OperatorWorld) -> None:
    world.apply("Queue", "orders", ORDERS)
    world.settle()

    assert queues(world) == ["orders"]
    assert world.condition("Queue", "orders") == ("True", "Synced")


def test_a_stream_is_declared_as_one_and_in_order_from_then_on(world: OperatorWorld) -> None:
    world.apply("Queue", "readings", {"name": "readings", "type": "stream", "arguments": {"x-max-age": "7D"}})
    world.settle()
    world.look_again()

    assert world.broker is not None
    declared = world.broker.vhosts["/"]["queues"]["readings"]
    assert declared["arguments"] == {"x-max-age": "7D", "x-queue-type": "stream"}
    assert world.condition("Queue", "readings") == ("True", "Synced")


def test_a_queue_takes_two_writes(world: OperatorWorld) -> None:
    world.apply("Queue", "orders", ORDERS)
    world.settle()
    world.look_again()

    writes = [verb for verb, kind, _ in world.kubernetes.writes if kind == "Queue"]
    assert writes == ["patch", "patch status"]


def test_what_was_applied_together_comes_in_any_order(world: OperatorWorld) -> None:
    world.apply("Permission", "web", {"userRef": {"name": "web"}, "vhost": "shop", "read": "orders"})
    world.apply("Binding", "orders", {"vhost": "shop", "source": "shop", "destination": "orders", "routingKey": "#"})
    world.apply("User", "web", {"name": "web"})
    world.apply("Queue", "orders", {"vhost": "shop", "name": "orders"})
    world.apply("Exchange", "shop", {"vhost": "shop", "name": "shop", "type": "topic"})
    world.apply("VHost", "shop", {"name": "shop"})
    world.settle()

    assert world.condition("Permission", "web") == ("True", "Synced")
    assert world.condition("Binding", "orders") == ("True", "Synced")
    assert broker(world).permissions["web", "shop"] == ("", "", "orders")


def test_a_queue_that_went_is_declared_again_and_told_of(world: OperatorWorld) -> None:
    world.apply("Queue", "orders", ORDERS)
    world.settle()

    broker(world).vhosts["/"]["queues"].clear()
    world.look_again()

    assert queues(world) == ["orders"]
    assert ("Queue", "orders", "DriftRepaired") in world.kubernetes.events


def test_a_queue_that_is_only_looked_at_is_not_repaired(world: OperatorWorld) -> None:
    world.apply("Queue", "orders", {**ORDERS, "preventUpdate": True})
    world.settle()

    broker(world).vhosts["/"]["queues"].clear()
    world.look_again()

    assert queues(world) == []
    assert world.condition("Queue", "orders") == ("False", "Drift")


def test_a_queue_that_is_there_otherwise_is_a_mismatch_that_says_what_differs(world: OperatorWorld) -> None:
    fields = {"durable": False, "auto_delete": False, "arguments": {}}
    broker(world).vhosts["/"]["queues"]["orders"] = fields

    world.apply("Queue", "orders", ORDERS)
    world.settle()

    assert world.condition("Queue", "orders") == ("False", "Mismatch")
    found = world.kubernetes.get("Queue", "orders")
    assert found is not None
    assert "durable is False there and True here" in found["status"]["conditions"][0]["message"]


def test_a_queue_that_must_not_be_adopted_is_left_alone(world: OperatorWorld) -> None:
    broker(world).vhosts["/"]["queues"]["orders"] = {"durable": True, "auto_delete": False, "arguments": {}}

    world.apply("Queue", "orders", {**ORDERS, "adopt": False, "deletionPolicy": "Delete"})
    world.settle()
    assert world.condition("Queue", "orders") == ("False", "Exists")

    world.kubernetes.remove("Queue", "orders")
    world.settle()
    assert queues(world) == ["orders"]


def test_of_two_that_describe_the_same_the_older_counts(world: OperatorWorld) -> None:
    world.apply("Queue", "first", ORDERS)
    world.apply("Queue", "second", ORDERS)
    world.settle()

    assert world.condition("Queue", "first") == ("True", "Synced")
    assert world.condition("Queue", "second", "Conflict") == ("True", "Conflict")


def test_when_the_older_goes_the_other_takes_over_and_the_queue_stays(world: OperatorWorld) -> None:
    world.apply("Queue", "first", {**ORDERS, "deletionPolicy": "Delete"})
    world.apply("Queue", "second", ORDERS)
    world.settle()

    world.kubernetes.remove("Queue", "first")
    world.settle()

    assert world.kubernetes.get("Queue", "first") is None
    assert "delete queue orders" not in broker(world).calls
    assert world.condition("Queue", "second") == ("True", "Synced")


@pytest.mark.parametrize(("policy", "left"), [("Retain", ["orders"]), ("Delete", [])])
def test_what_becomes_of_the_queue_is_what_the_deletion_policy_says(
    world: OperatorWorld, policy: str, left: list[str]
) -> None:
    world.apply("Queue", "orders", {**ORDERS, "deletionPolicy": policy})
    world.settle()

    world.kubernetes.remove("Queue", "orders")
    world.settle()

    assert world.kubernetes.get("Queue", "orders") is None
    assert queues(world) == left


def test_a_queue_that_must_be_empty_first_stays_until_it_is(world: OperatorWorld) -> None:
    world.apply("Queue", "orders", {**ORDERS, "deletionPolicy": "Delete", "deleteIfEmpty": True})
    world.settle()
    broker(world).vhosts["/"]["queues"]["orders"]["messages"] = 3

    world.kubernetes.remove("Queue", "orders")
    world.settle()
    assert world.condition("Queue", "orders") == ("False", "PreconditionFailed")

    broker(world).vhosts["/"]["queues"]["orders"].pop("messages")
    world.look_again()
    assert world.kubernetes.get("Queue", "orders") is None
    assert queues(world) == []


def test_a_paused_cluster_does_not_hold_up_the_deletion_of_its_objects(world: OperatorWorld) -> None:
    world.apply("Queue", "orders", {**ORDERS, "deletionPolicy": "Delete"})
    world.settle()
    world.kubernetes.change("Cluster", "mq", {"paused": True})
    world.settle()

    world.kubernetes.remove("Queue", "orders")
    world.settle()

    assert world.kubernetes.get("Queue", "orders") is None
    assert queues(world) == []


def test_an_object_goes_when_its_cluster_is_gone(world: OperatorWorld) -> None:
    world.apply("Queue", "orders", {**ORDERS, "deletionPolicy": "Delete"})
    world.settle()

    world.kubernetes.remove("Cluster", "mq")
    world.kubernetes.remove("Queue", "orders")
    world.settle()

    assert world.kubernetes.get("Cluster", "mq") is None
    assert world.kubernetes.get("Queue", "orders") is None


def test_an_object_that_goes_waits_for_a_broker_that_is_down(world: OperatorWorld) -> None:
    world.apply("Queue", "orders", {**ORDERS, "deletionPolicy": "Delete"})
    world.settle()
    broker(world).is_up = False

    world.kubernetes.remove("Queue", "orders")
    world.settle()
    assert world.kubernetes.get("Queue", "orders") is not None

    broker(world).is_up = True
    world.look_again()
    assert world.kubernetes.get("Queue", "orders") is None
    assert queues(world) == []


def test_a_user_gets_a_password_once_and_a_secret_to_bind(world: OperatorWorld) -> None:
    world.apply("User", "web", {"name": "web", "tags": ["monitoring"]})
    world.settle()

    secret = world.kubernetes.get("Secret", "web-user-credentials")
    assert secret is not None
    assert secret["type"] == "servicebinding.io/penstock"
    assert set(secret["data"]) >= {"type", "provider", "host", "port", "username", "password", "uri"}
    assert broker(world).passwords["web"] == "generated"

    world.world.password = lambda: "another"
    world.look_again()
    assert broker(world).passwords["web"] == "generated"


def test_a_user_s_password_and_tags_are_put_right(world: OperatorWorld) -> None:
    world.apply("User", "web", {"name": "web", "tags": ["monitoring"]})
    world.settle()

    broker(world).passwords["web"] = "changed"
    broker(world).tags["web"] = ("administrator",)
    world.look_again()

    assert broker(world).passwords["web"] == "generated"
    assert broker(world).tags["web"] == ("monitoring",)


def test_a_secret_of_somebody_else_is_not_taken(world: OperatorWorld) -> None:
    world.kubernetes.add(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "web-user-credentials"},
            "data": {"password": "eA=="},
        }
    )

    world.apply("User", "web", {"name": "web"})
    world.settle()

    assert world.condition("User", "web") == ("False", "SecretTaken")
    assert "web" not in broker(world).passwords


def test_a_cluster_takes_nothing_from_other_namespaces_unless_it_says_so(world: OperatorWorld) -> None:
    spec = {**ORDERS, "clusterRef": {"name": "mq", "namespace": "default"}}
    world.apply("Queue", "orders", spec, namespace="shop")
    world.settle()

    found = world.kubernetes.get("Queue", "orders", "shop")
    assert found is not None
    assert found["status"]["conditions"][0]["reason"] == "NamespaceNotAllowed"

    world.kubernetes.change("Cluster", "mq", {"topology": {"allowedNamespaces": {"from": "All"}}})
    world.settle()
    world.look_again()
    assert queues(world) == ["orders"]


@pytest.mark.parametrize(("kind", "limits_of"), [("VHost", "shop"), ("User", "@shop")])
def test_limits_are_set_and_put_right(world: OperatorWorld, kind: str, limits_of: str) -> None:
    def limits() -> dict[str, int]:
        return {name: limit for name, limit in broker(world).limits[limits_of].items() if limit is not None}

    world.apply(kind, "shop", {"name": "shop", "limits": {"maxConnections": 10, "publishBytesRate": 5}})
    world.settle()
    assert limits() == {"connections_max": 10, "publish_bytes_rate": 5}

    broker(world).limits[limits_of] = {"connections_max": 99, "message_bytes_max": 1}
    world.look_again()
    assert limits() == {"connections_max": 10, "publish_bytes_rate": 5}
    assert (kind, "shop", "DriftRepaired") in world.kubernetes.events

    world.kubernetes.change(kind, "shop", {"limits": {}})
    world.settle()
    assert limits() == {}


def test_the_default_queue_type_is_set_put_right_and_left_when_no_manifest_names_it(world: OperatorWorld) -> None:
    types = broker(world).default_queue_types
    world.apply("VHost", "shop", {"name": "shop", "defaultQueueType": "quorum"})
    world.settle()
    assert types == {"shop": "quorum"}

    types["shop"] = "stream"
    world.look_again()
    assert types == {"shop": "quorum"}

    world.kubernetes.change("VHost", "shop", {"defaultQueueType": None})
    world.settle()
    types["shop"] = "classic"
    world.look_again()
    assert types == {"shop": "classic"}


def test_a_classic_queue_is_classic_whatever_the_default_type_is(world: OperatorWorld) -> None:
    broker(world).default_queue_types["/"] = "quorum"
    world.apply("Queue", "orders", ORDERS)
    world.settle()

    assert "x-queue-type" not in broker(world).vhosts["/"]["queues"]["orders"]["arguments"]
    assert world.condition("Queue", "orders") == ("True", "Synced")


def test_a_broker_from_before_users_had_limits_has_users(world: OperatorWorld) -> None:
    broker(world).has_user_limits = False
    world.apply("User", "web", {"name": "web"})
    world.apply("User", "fast", {"name": "fast", "limits": {"maxStreams": 1}})
    world.settle()

    assert world.condition("User", "web") == ("True", "Synced")
    assert world.condition("User", "fast") == ("False", "NotSupported")


def test_a_policy_is_set_changed_put_right_and_cleared(world: OperatorWorld) -> None:
    policies = broker(world).vhosts["/"]["policies"]
    world.apply("Policy", "limits", {"name": "limits", "pattern": "^o", "definition": {"max-length": 10}})
    world.settle()
    assert policies == {("limits", False): ("^o", "all", 0, {"max-length": 10})}

    world.kubernetes.change("Policy", "limits", {"priority": 5})
    world.settle()
    assert policies["limits", False] == ("^o", "all", 5, {"max-length": 10})

    policies["limits", False] = ("^x", "all", 5, {})
    world.look_again()
    assert policies["limits", False] == ("^o", "all", 5, {"max-length": 10})

    world.kubernetes.remove("Policy", "limits")
    world.settle()
    assert policies == {}


def test_a_policy_that_the_broker_refuses_says_why(world: OperatorWorld) -> None:
    world.apply("Policy", "limits", {"name": "limits", "pattern": ".*", "definition": {"max-what": 10}})
    world.settle()

    assert world.condition("Policy", "limits") == ("False", "InvalidArgument")


def test_a_paused_object_is_left_alone(world: OperatorWorld) -> None:
    world.apply("Queue", "orders", ORDERS, annotations={"penstock.dev/paused": "true"})
    world.settle()

    assert queues(world) == []
    assert world.condition("Queue", "orders") == ("False", "Paused")


def test_an_object_that_went_while_nobody_watched_is_forgotten(world: OperatorWorld) -> None:
    world.apply("Queue", "orders", ORDERS, annotations={"penstock.dev/paused": "true"})
    world.settle()
    world.kubernetes.on_change = lambda manifest, is_gone: None
    world.kubernetes.remove("Queue", "orders")

    key = Key("Queue", "default", "orders")
    ghost = world.store.get(key)
    assert ghost is not None
    world.store.put({**ghost, "metadata": {**ghost["metadata"], "annotations": {}, "resourceVersion": "999"}})
    world.add(key)
    world.settle()

    assert world.store.get(key) is None
    assert queues(world) == []


def test_a_broker_that_restarts_is_no_news_about_its_queues(world: OperatorWorld) -> None:
    world.apply("Queue", "orders", ORDERS)
    world.settle()
    before = world.kubernetes.get("Queue", "orders")

    broker(world).is_up = False
    world.look_again()

    assert world.kubernetes.get("Queue", "orders") == before
