"""The administrator's Secret: lost, rotated, changed, and a broker that learns of it later."""

import base64

import pytest

from penstock_operator.engine import Key
from support.kubernetes_fake import Manifest
from support.operator_world import OperatorWorld

CLUSTER = Key("Cluster", "default", "mq")
OLD_IMAGE = {"metadata": {"annotations": {"penstock.dev/revision": "1"}}}


@pytest.fixture
def world() -> OperatorWorld:
    made = OperatorWorld()
    made.start_cluster()
    made.world.password = lambda: "another"
    return made


def secret(world: OperatorWorld) -> Manifest:
    return world.kubernetes.objects["Secret", "default", "mq-default-user"]


def password(world: OperatorWorld) -> str:
    return base64.b64decode(secret(world)["data"]["password"]).decode()


def deliver(world: OperatorWorld, *, grace: bool = True) -> None:
    """Let the broker read the Secret, as when the kubelet has updated its file."""
    assert world.broker is not None
    if grace:
        world.broker.previous["admin"] = world.broker.passwords["admin"]
    world.broker.passwords["admin"] = password(world)


def look(world: OperatorWorld) -> float | None:
    """Reconcile the Cluster once, and what it wakes."""
    again = world.reconcile(CLUSTER)
    world.settle()
    return again


def annotate(world: OperatorWorld, value: str) -> None:
    world.kubernetes.edit("Cluster", "mq", {"metadata": {"annotations": {"penstock.dev/rotate-password": value}}})
    world.settle()


def test_a_secret_that_was_deleted_is_made_anew_and_the_broker_follows_it(world: OperatorWorld) -> None:
    world.kubernetes.remove("Secret", "mq-default-user")
    world.apply("Queue", "jobs", {"vhost": "/", "name": "jobs"})
    again = look(world)

    assert password(world) == "another"
    assert world.condition("Cluster", "mq") == ("True", "Serving"), "the operator goes on with the password that counts"
    assert world.condition("Cluster", "mq", "PasswordSynced") == ("False", "PasswordPending")
    assert world.condition("Queue", "jobs") == ("True", "Synced")
    assert again is not None
    assert again <= 10
    assert ("Cluster", "mq", "SecretMade") in world.kubernetes.events

    deliver(world)
    look(world)
    assert world.condition("Cluster", "mq", "PasswordSynced") == ("True", "Synced")
    assert world.condition("Cluster", "mq") == ("True", "Serving")

    assert world.broker is not None
    world.broker.previous.clear()
    world.apply("Queue", "more", {"vhost": "/", "name": "more"})
    world.settle()
    assert world.condition("Queue", "more") == ("True", "Synced"), "the previous password is used no longer"


def test_an_operator_that_restarts_before_the_broker_has_the_new_password_waits_for_it(world: OperatorWorld) -> None:
    world.kubernetes.remove("Secret", "mq-default-user")
    look(world)
    world.world.accepted.clear()
    again = look(world)
    assert world.condition("Cluster", "mq") == ("False", "CredentialsRejected")
    assert again is not None
    assert again <= 10

    deliver(world)
    look(world)
    assert world.condition("Cluster", "mq") == ("True", "Serving")


def test_the_password_is_rotated_once_for_each_value_of_the_annotation(world: OperatorWorld) -> None:
    annotate(world, "1")
    assert password(world) == "another"
    assert base64.b64decode(secret(world)["data"]["uri"]).decode().startswith("penstock://admin:another@")
    assert ("Cluster", "mq", "PasswordRotated") in world.kubernetes.events
    deliver(world)

    world.world.password = lambda: "third"
    world.look_again()
    assert password(world) == "another"

    annotate(world, "2")
    assert password(world) == "third"


def test_a_new_cluster_with_the_annotation_begins_with_one_password(world: OperatorWorld) -> None:
    world = OperatorWorld()
    annotations = {"penstock.dev/rotate-password": "1"}
    world.apply("Cluster", "mq", {"image": "penstock:test"}, annotations=annotations)
    world.settle()
    first = secret(world)["data"]
    world.world.password = lambda: "another"

    world.look_again()

    assert secret(world)["data"] == first


def test_a_rotation_writes_password_and_mark_in_one_request(world: OperatorWorld) -> None:
    world.kubernetes.writes.clear()

    annotate(world, "1")

    assert world.kubernetes.writes.count(("patch", "Secret", "mq-default-user")) == 1


def test_a_broker_that_reads_its_password_once_is_not_rotated(world: OperatorWorld) -> None:
    world.kubernetes.edit("Cluster", "mq", OLD_IMAGE)
    annotate(world, "1")

    assert password(world) == "generated"
    assert world.condition("Cluster", "mq", "PasswordSynced") == ("False", "RotationUnsupported")
    assert world.condition("Cluster", "mq") == ("True", "Serving")


def test_the_secret_of_a_broker_that_reads_its_password_once_is_made_again_with_that_password(
    world: OperatorWorld,
) -> None:
    world.kubernetes.edit("Cluster", "mq", OLD_IMAGE)
    world.kubernetes.remove("Secret", "mq-default-user")
    world.look_again()

    assert password(world) == "generated"
    assert world.condition("Cluster", "mq") == ("True", "Serving")


def test_a_password_that_a_user_writes_into_the_secret_stays(world: OperatorWorld) -> None:
    theirs = base64.b64encode(b"theirs").decode()
    world.kubernetes.edit("Secret", "mq-default-user", {"data": {"password": theirs}})
    look(world)

    assert password(world) == "theirs"
    assert base64.b64decode(secret(world)["data"]["uri"]).decode().startswith("penstock://admin:theirs@")
    assert world.condition("Cluster", "mq", "PasswordSynced") == ("False", "PasswordPending")


def test_a_password_counts_without_its_newline_as_the_broker_reads_it(world: OperatorWorld) -> None:
    assert world.broker is not None
    written = base64.b64encode(b"theirs\n").decode()
    world.kubernetes.edit("Secret", "mq-default-user", {"data": {"password": written}})
    world.broker.passwords["admin"] = "theirs"
    look(world)

    assert secret(world)["data"]["password"] == written
    assert base64.b64decode(secret(world)["data"]["uri"]).decode().startswith("penstock://admin:theirs@")
    assert world.condition("Cluster", "mq", "PasswordSynced") == ("True", "Synced")


@pytest.mark.parametrize("content", [b"two\nlines", b"\xff\xfe", b"x" * 1025, b"\n"])
def test_a_password_that_the_broker_cannot_read_is_named_and_the_broker_serves_on(
    world: OperatorWorld, content: bytes
) -> None:
    world.kubernetes.edit("Secret", "mq-default-user", {"data": {"password": base64.b64encode(content).decode()}})

    look(world)

    assert world.condition("Cluster", "mq", "PasswordSynced") == ("False", "SecretInvalid")
    assert world.condition("Cluster", "mq") == ("True", "Serving")


def test_a_secret_without_a_password_is_named_and_the_broker_serves_on(world: OperatorWorld) -> None:
    world.kubernetes.edit("Secret", "mq-default-user", {"data": {"password": None}})

    look(world)

    assert world.condition("Cluster", "mq", "PasswordSynced") == ("False", "SecretIncomplete")
    assert world.condition("Cluster", "mq") == ("True", "Serving")


def test_a_secret_that_lost_our_label_gets_it_back_as_changes_would_not_be_seen(world: OperatorWorld) -> None:
    world.kubernetes.edit("Secret", "mq-default-user", {"metadata": {"labels": None}})

    world.look_again()

    assert secret(world)["metadata"]["labels"]["penstock.dev/cluster"] == "mq"


def test_the_password_is_in_a_file_that_kubernetes_updates_and_not_in_the_environment(world: OperatorWorld) -> None:
    template = world.kubernetes.objects["StatefulSet", "default", "mq"]["spec"]["template"]["spec"]
    (container,) = template["containers"]
    (volume,) = (each for each in template["volumes"] if each["name"] == "administrator")
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "administrator")

    assert "env" not in container
    assert volume["secret"]["secretName"] == "mq-default-user"
    assert volume["secret"]["items"] == [{"key": "password", "path": "password"}]
    assert "subPath" not in mount


def test_a_secret_that_cannot_be_written_is_reported_and_stops_nothing(world: OperatorWorld) -> None:
    world.kubernetes.kinds_refused.add("Secret")
    world.kubernetes.edit("Secret", "mq-default-user", {"metadata": {"labels": None}})
    world.kubernetes.change("Cluster", "mq", {"podLabels": {"team": "shop"}})
    world.settle()

    assert world.condition("Cluster", "mq", "PasswordSynced") == ("False", "ApplyRefused")
    assert world.condition("Cluster", "mq") == ("True", "Serving")
    template = world.kubernetes.objects["StatefulSet", "default", "mq"]["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "shop"
