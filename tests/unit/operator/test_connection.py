"""Objects in a broker that the operator does not run, which a Secret leads to."""

import base64
from typing import Any

import pytest

from penstock.client.errors import BlockedError, CancelledError, PenstockError
from penstock_operator.engine import Key
from penstock_operator.engine.connection import forget_unused
from penstock_operator.links import BrokerUnreachableError
from support.admin_fake import FakeBroker
from support.operator_world import OperatorWorld

WAREHOUSE = {"connectionSecretRef": {"name": "warehouse"}}
VALUES = {"uri": "penstock://mq.example.com:5680", "username": "admin", "password": "s3cret"}
RELEASE = {"metadata": {"annotations": {"penstock.dev/release": "true"}}}


@pytest.fixture
def world() -> OperatorWorld:
    made = OperatorWorld()
    made.world.allows_connections = True
    made.broker = FakeBroker.new("s3cret")
    make_secret(made)
    return made


def encoded(values: dict[str, str]) -> dict[str, str]:
    return {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}


def make_secret(world: OperatorWorld, name: str = "warehouse", **values: str) -> None:
    data = encoded({**VALUES, **values})
    world.kubernetes.add({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data})


def change_secret(world: OperatorWorld, **values: str) -> None:
    world.kubernetes.edit("Secret", "warehouse", {"data": encoded(values)})
    world.settle()


def broker(world: OperatorWorld) -> FakeBroker:
    assert world.broker is not None
    return world.broker


def message(world: OperatorWorld, kind: str, name: str) -> str:
    found = world.kubernetes.get(kind, name)
    assert found is not None
    text: str = found["status"]["conditions"][0]["message"]
    return text


def apply_user(world: OperatorWorld, name: str = "web", **spec: Any) -> None:
    world.apply("User", name, {**WAREHOUSE, "name": name, **spec})
    world.settle()


def test_objects_of_all_kinds_are_made_on_the_broker_that_the_secret_leads_to(world: OperatorWorld) -> None:
    world.apply("Permission", "web", {**WAREHOUSE, "userRef": {"name": "web"}, "vhost": "shop", "read": "orders"})
    world.apply("Queue", "orders", {**WAREHOUSE, "vhost": "shop", "name": "orders"})
    world.apply("VHost", "shop", {**WAREHOUSE, "name": "shop"})
    apply_user(world, tags=["administrator"])

    assert "orders" in broker(world).vhosts["shop"]["queues"]
    assert broker(world).permissions["web", "shop"] == ("", "", "orders")
    assert broker(world).tags["web"] == ("administrator",)
    for kind, name in (("Queue", "orders"), ("VHost", "shop"), ("User", "web"), ("Permission", "web")):
        assert world.condition(kind, name) == ("True", "Synced"), kind


def test_the_user_gets_a_secret_for_that_broker(world: OperatorWorld) -> None:
    apply_user(world)

    found = world.kubernetes.get("Secret", "web-user-credentials")
    assert found is not None
    uri = base64.b64decode(found["data"]["uri"]).decode()
    assert uri == "penstock://web:generated@mq.example.com:5680/"
    assert "ca.crt" not in found["data"]


def test_nothing_is_connected_to_unless_the_operator_s_settings_allow_it(world: OperatorWorld) -> None:
    world.world.allows_connections = False
    apply_user(world)

    assert world.condition("User", "web") == ("False", "ConnectionSecretsNotAllowed")
    assert broker(world).tried == []
    assert ("Secret", "warehouse") not in world.kubernetes.reads


def test_the_account_in_the_secret_is_the_operator_s_own(world: OperatorWorld) -> None:
    broker(world).passwords["robot"], broker(world).tags["robot"] = "s3cret", ("administrator",)
    change_secret(world, username="robot")
    apply_user(world, "robot", importCredentialsSecret={"name": "warehouse"})
    world.apply("Permission", "robot", {**WAREHOUSE, "user": "robot", "read": ".*"})
    world.settle()

    assert world.condition("User", "robot") == ("False", "ReservedName")
    assert world.condition("Permission", "robot") == ("False", "ReservedName")
    world.kubernetes.remove("User", "robot")
    world.settle()
    assert broker(world).passwords["robot"] == "s3cret"
    assert world.kubernetes.get("User", "robot") is None


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"uri": ""}, "SecretIncomplete"),
        ({"password": ""}, "SecretIncomplete"),
        ({"uri": "http://mq.example.com"}, "SecretInvalid"),
        ({"password": "wrong"}, "CredentialsRejected"),
    ],
    ids=["no uri", "no password", "no address", "wrong password"],
)
def test_a_secret_that_cannot_be_used_is_reported_until_it_is_corrected(
    world: OperatorWorld, values: dict[str, str], reason: str
) -> None:
    change_secret(world, **values)
    apply_user(world)
    assert world.condition("User", "web") == ("False", reason)
    assert "'warehouse'" in message(world, "User", "web")
    assert "wrong" not in message(world, "User", "web").replace("wrong uri", "")

    change_secret(world, **VALUES)

    assert world.condition("User", "web") == ("True", "Synced")


def test_a_missing_secret_is_waited_for(world: OperatorWorld) -> None:
    world.kubernetes.remove("Secret", "warehouse")
    apply_user(world)
    assert world.condition("User", "web") == ("False", "SecretNotFound")

    make_secret(world)
    world.look_again()

    assert world.condition("User", "web") == ("True", "Synced")


def test_a_changed_secret_is_followed_at_once(world: OperatorWorld) -> None:
    apply_user(world)
    broker(world).passwords["admin"] = "another"
    broker(world).tried.clear()
    broker(world).tags.pop("web")

    change_secret(world, password="another")

    assert "admin" in broker(world).tried
    assert "web" in broker(world).tags
    assert world.kubernetes.objects["Secret", "default", "warehouse"]["metadata"]["labels"] == {
        "penstock.dev/cluster": ""
    }


def test_the_secret_is_read_once_for_all_objects(world: OperatorWorld) -> None:
    for number in range(20):
        apply_user(world, f"web{number}")

    assert world.kubernetes.reads.count(("Secret", "warehouse")) == 1


def test_a_broker_that_does_not_answer_is_reported_after_some_attempts(world: OperatorWorld) -> None:
    apply_user(world)
    broker(world).is_up = False
    world.seconds += 60
    key = Key("User", "default", "web")

    with pytest.raises(BrokerUnreachableError):
        world.reconcile(key, 0)
    assert world.condition("User", "web") == ("True", "Synced")
    world.seconds += 60
    with pytest.raises(BrokerUnreachableError):
        world.reconcile(key, 4)
    assert world.condition("User", "web") == ("False", "BrokerUnreachable")

    broker(world).is_up = True
    world.look_again()
    assert world.condition("User", "web") == ("True", "Synced")


def test_a_broker_that_does_not_answer_by_one_secret_is_asked_by_another(world: OperatorWorld) -> None:
    """Whoever writes a wrong port into a Secret must not hold up others who reach the same host."""
    make_secret(world, "other", uri="penstock://mq.example.com:1")
    broker(world).is_up = False
    world.apply("Queue", "theirs", {"connectionSecretRef": {"name": "other"}, "name": "theirs"})
    world.settle()
    assert world.condition("Queue", "theirs") == ("False", "BrokerUnreachable")

    broker(world).is_up = True
    world.apply("Queue", "orders", {**WAREHOUSE, "name": "orders"})
    world.reconcile(Key("Queue", "default", "orders"))

    assert world.condition("Queue", "orders") == ("True", "Synced")


def test_of_two_objects_that_name_one_secret_the_older_counts(world: OperatorWorld) -> None:
    world.apply("Queue", "first", {**WAREHOUSE, "name": "orders"})
    world.apply("Queue", "second", {**WAREHOUSE, "name": "orders"})
    world.settle()

    assert world.condition("Queue", "first") == ("True", "Synced")
    assert world.condition("Queue", "second") == ("False", "Conflict")


def test_another_namespace_has_no_part_in_a_secret(world: OperatorWorld) -> None:
    world.apply("User", "web", {**WAREHOUSE, "name": "web"}, namespace="stranger")
    world.settle()

    found = world.kubernetes.get("User", "web", "stranger")
    assert found is not None
    assert found["status"]["conditions"][0]["reason"] == "SecretNotFound"
    assert "web" not in broker(world).tags


def test_a_deleted_object_is_deleted_on_the_broker(world: OperatorWorld) -> None:
    apply_user(world)

    world.kubernetes.remove("User", "web")
    world.settle()

    assert world.kubernetes.get("User", "web") is None
    assert "web" not in broker(world).tags


def test_a_deletion_without_the_secret_uses_the_connection_that_was_used_last(world: OperatorWorld) -> None:
    apply_user(world)

    world.kubernetes.remove("Secret", "warehouse")
    world.kubernetes.remove("User", "web")
    world.settle()

    assert world.kubernetes.get("User", "web") is None
    assert "web" not in broker(world).tags


def test_a_deletion_without_secret_and_memory_waits_and_the_annotation_ends_it(world: OperatorWorld) -> None:
    apply_user(world)
    world.kubernetes.remove("Secret", "warehouse")
    world.world.connections.clear()

    world.kubernetes.remove("User", "web")
    world.settle()
    assert world.condition("User", "web") == ("False", "SecretNotFound")
    assert ("User", "web", "DeletionWaits") in world.kubernetes.events

    world.kubernetes.edit("User", "web", RELEASE)
    world.settle()
    assert world.kubernetes.get("User", "web") is None
    assert "web" in broker(world).tags


def test_a_namespace_that_is_deleted_with_its_secret_does_not_hang(world: OperatorWorld) -> None:
    apply_user(world)
    world.kubernetes.remove("Secret", "warehouse")
    world.world.connections.clear()
    about = {"deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["kubernetes"]}
    world.kubernetes.add({"kind": "Namespace", "metadata": {"name": "default", "namespace": "", **about}})

    world.kubernetes.remove("User", "web")
    world.settle()

    assert world.kubernetes.get("User", "web") is None
    assert ("User", "web", "LeftOnBroker") in world.kubernetes.events


def test_a_connection_that_no_object_uses_is_closed(world: OperatorWorld) -> None:
    apply_user(world)
    forget_unused(world.world)
    assert list(world.world.connections) == [Key("Secret", "default", "warehouse")]

    world.kubernetes.remove("User", "web")
    world.settle()
    forget_unused(world.world)

    assert world.world.connections == {}


@pytest.mark.parametrize("error", [BlockedError("full"), CancelledError("ended")])
def test_a_broker_that_takes_no_connection_is_reported(
    world: OperatorWorld, monkeypatch: pytest.MonkeyPatch, error: PenstockError
) -> None:
    """It was logged as a bug, and the object said nothing."""

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(broker(world), "connect", refuse)
    apply_user(world)

    assert world.condition("User", "web") == ("False", "BrokerBlocked")
