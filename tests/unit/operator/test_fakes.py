"""The fake Kubernetes behaves as a real one where the operator depends on it."""

from typing import Any

import pytest

from penstock_operator.engine import Key
from support.kubernetes_fake import FakeKubernetes, Manifest
from support.operator_world import OperatorWorld


def service(**spec: Any) -> Manifest:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "mq", "namespace": "default"}, "spec": spec}


def grpc() -> Manifest:
    return {"name": "grpc", "port": 5680, "protocol": "TCP"}


def applied(kubernetes: FakeKubernetes, **spec: Any) -> Manifest:
    found: Manifest = kubernetes.apply(service(**spec))["spec"]
    return found


def test_what_another_added_to_a_map_or_a_keyed_list_stays_and_a_selector_is_replaced() -> None:
    kubernetes = FakeKubernetes()
    applied(kubernetes, selector={"app": "mq"}, ports=[grpc()], labels={"a": "1"})
    kubernetes.objects["Service", "default", "mq"]["spec"]["selector"]["extra"] = "x"
    kubernetes.objects["Service", "default", "mq"]["spec"]["labels"]["extra"] = "x"
    kubernetes.objects["Service", "default", "mq"]["spec"]["ports"].append({"name": "more", "port": 1})

    found = applied(kubernetes, selector={"app": "mq"}, ports=[grpc()], labels={"a": "1"})

    assert found["selector"] == {"app": "mq"}
    assert found["labels"] == {"a": "1", "extra": "x"}
    assert [each["port"] for each in found["ports"]] == [5680, 1]


def test_what_is_no_longer_applied_goes_and_what_it_never_applied_stays() -> None:
    kubernetes = FakeKubernetes()
    applied(kubernetes, labels={"a": "1", "b": "2"}, ports=[grpc(), {"name": "old", "port": 2}])
    kubernetes.edit("Service", "mq", {"spec": {"labels": {"theirs": "x"}}})

    found = applied(kubernetes, labels={"a": "1"}, ports=[grpc()])

    assert found == {"labels": {"a": "1", "theirs": "x"}, "ports": [grpc()]}


def test_the_generation_counts_changes_of_the_spec_only() -> None:
    kubernetes = FakeKubernetes()

    applied(kubernetes, type="ClusterIP")
    again = kubernetes.apply(service(type="ClusterIP"))
    changed = kubernetes.apply(service(type="NodePort"))

    assert [each["metadata"]["generation"] for each in (again, changed)] == [1, 2]


def owned(name: str, *uids: str) -> Manifest:
    owners = [{"kind": "Cluster", "name": uid, "uid": uid} for uid in uids]
    return {"kind": "Pod", "metadata": {"name": name, "uid": f"uid-{name}", "ownerReferences": owners}}


def test_an_object_goes_with_its_last_owner_and_so_does_what_it_owned() -> None:
    kubernetes = FakeKubernetes()
    for name in ("one", "two"):
        kubernetes.add({"kind": "Cluster", "metadata": {"name": name, "uid": name}})
    kubernetes.add(owned("shared", "one", "two"))
    kubernetes.add(owned("child", "uid-shared"))

    kubernetes.remove("Cluster", "one")
    assert kubernetes.get("Pod", "child") is not None

    kubernetes.remove("Cluster", "two")
    assert kubernetes.objects == {}


def test_an_owner_that_is_terminating_keeps_what_it_owns() -> None:
    kubernetes = FakeKubernetes()
    kubernetes.add({"kind": "Cluster", "metadata": {"name": "one", "uid": "one", "finalizers": ["x"]}})
    kubernetes.add(owned("child", "one"))

    kubernetes.remove("Cluster", "one")
    assert kubernetes.get("Pod", "child") is not None

    kubernetes.edit("Cluster", "one", {"metadata": {"finalizers": None}})
    assert kubernetes.objects == {}


def test_a_delete_that_orphans_leaves_what_the_object_owned() -> None:
    kubernetes = FakeKubernetes()
    one = kubernetes.add({"kind": "Cluster", "metadata": {"name": "one", "uid": "one"}})
    kubernetes.add(owned("child", "one"))

    kubernetes.delete(one, propagation="Orphan")

    assert list(kubernetes.objects) == [("Pod", "default", "child")]


def test_a_lingering_object_is_terminating_until_it_finishes() -> None:
    kubernetes = FakeKubernetes()
    kubernetes.kinds_lingering.add("Pod")
    pod = kubernetes.add(owned("slow"))

    kubernetes.delete(pod)
    found = kubernetes.get("Pod", "slow")
    assert found is not None
    assert "deletionTimestamp" in found["metadata"]

    kubernetes.finish("Pod", "slow")
    assert kubernetes.objects == {}


def test_a_delete_of_an_object_that_was_made_anew_does_nothing() -> None:
    kubernetes = FakeKubernetes()
    old = kubernetes.add(owned("child"))
    kubernetes.objects["Pod", "default", "child"]["metadata"]["uid"] = "another"

    kubernetes.delete(old)

    assert kubernetes.get("Pod", "child") is not None


@pytest.mark.parametrize(("policy", "is_kept"), [("Retain", True), ("Delete", False)])
def test_claims_go_with_their_workload_when_its_policy_says_so(policy: str, is_kept: bool) -> None:
    kubernetes = FakeKubernetes()
    kubernetes.add({"kind": "PersistentVolumeClaim", "metadata": {"name": "data-mq-0"}})
    policies = {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": policy}}
    metadata = {"name": "mq", "namespace": "default"}
    kubernetes.apply({"kind": "StatefulSet", "metadata": metadata, "spec": policies})

    kubernetes.remove("StatefulSet", "mq")

    assert (kubernetes.get("PersistentVolumeClaim", "data-mq-0") is not None) is is_kept


def test_an_operator_that_was_away_knows_what_its_lists_have_brought() -> None:
    world = OperatorWorld()
    world.start_cluster()
    world.stop()
    world.apply("Queue", "jobs", {"vhost": "/", "name": "jobs"})
    assert world.store.all() == []

    world.start(["Queue"])
    assert world.store.all() == [Key("Queue", "default", "jobs")]

    world.deliver("Cluster", "mq")
    assert Key("Cluster", "default", "mq") in world.store.all()


def test_objects_are_listed_by_their_labels() -> None:
    kubernetes = FakeKubernetes()
    for name in ("one", "two"):
        kubernetes.add({"kind": "Pod", "metadata": {"name": name, "labels": {"cluster": name}}})

    (found,) = kubernetes.list("v1", "Pod", "default", "cluster=two")

    assert found["metadata"]["name"] == "two"
