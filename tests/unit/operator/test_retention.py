"""The fate of a Cluster's volume and of its administrator's Secret: `whenDeleted` as it is when the Cluster goes."""

import itertools

import pytest

from penstock_operator.engine import Key
from penstock_operator.links import ApiError
from support.kubernetes_fake import FakeKubernetes, Manifest
from support.operator_world import OperatorWorld

FATES = [("Delete", "Retain", True), ("Retain", "Delete", False)]
fates = pytest.mark.parametrize(("before", "after", "is_kept"), FATES)


def started(when_deleted: str) -> OperatorWorld:
    world = OperatorWorld()
    world.start_cluster(storage=retain(when_deleted))
    return world


def retain(when_deleted: str) -> Manifest:
    return {"retain": {"whenDeleted": when_deleted}}


def kept(kubernetes: FakeKubernetes) -> tuple[bool, bool]:
    """Return whether there is still the volume, and the Secret."""
    volume, secret = ("PersistentVolumeClaim", "data-mq-0"), ("Secret", "mq-default-user")
    return kubernetes.get(*volume) is not None, kubernetes.get(*secret) is not None


@fates
def test_it_counts_what_the_manifest_says_when_the_cluster_is_deleted(before: str, after: str, is_kept: bool) -> None:
    world = started(before)

    world.kubernetes.change("Cluster", "mq", {"storage": retain(after)})
    world.settle()
    world.kubernetes.remove("Cluster", "mq")
    world.settle()

    assert world.kubernetes.get("Cluster", "mq") is None
    assert kept(world.kubernetes) == (is_kept, is_kept)


@fates
def test_a_change_that_the_operator_did_not_see_counts_too(before: str, after: str, is_kept: bool) -> None:
    world = started(before)

    world.stop()
    world.kubernetes.change("Cluster", "mq", {"storage": retain(after)})
    world.kubernetes.remove("Cluster", "mq")
    world.start()
    world.settle()

    assert world.kubernetes.get("Cluster", "mq") is None
    assert kept(world.kubernetes) == (is_kept, is_kept)


@fates
def test_a_change_of_a_paused_cluster_counts_too(before: str, after: str, is_kept: bool) -> None:
    world = started(before)

    world.kubernetes.change("Cluster", "mq", {"paused": True, "storage": retain(after)})
    world.settle()
    world.kubernetes.remove("Cluster", "mq")
    world.settle()

    assert kept(world.kubernetes) == (is_kept, is_kept)


@fates
def test_a_change_behind_a_child_that_was_refused_counts_too(before: str, after: str, is_kept: bool) -> None:
    world = started(before)

    world.kubernetes.edit("ConfigMap", "mq-config", {"data": {"penstock.toml": "other"}})
    world.kubernetes.kinds_refused.add("ConfigMap")
    world.kubernetes.change("Cluster", "mq", {"storage": retain(after)})
    world.settle()
    world.kubernetes.remove("Cluster", "mq")
    world.settle()

    assert kept(world.kubernetes) == (is_kept, is_kept)


@fates
def test_volume_and_secret_share_one_fate_wherever_the_operator_dies(before: str, after: str, is_kept: bool) -> None:
    for steps in itertools.count():
        world = started(before)
        world.stop()
        world.kubernetes.change("Cluster", "mq", {"storage": retain(after)})
        world.kubernetes.remove("Cluster", "mq")
        world.start()
        is_interrupted = run(world, steps)
        world.stop()
        world.start()
        world.settle()

        assert world.kubernetes.get("Cluster", "mq") is None
        assert kept(world.kubernetes) == (is_kept, is_kept), f"interrupted after {steps} writes"
        if not is_interrupted:
            break
    assert steps >= 1


def run(world: OperatorWorld, steps: int) -> bool:
    """Reconcile until that many writes were made; return whether that interrupted it."""
    before = len(world.kubernetes.writes)
    patch = world.kubernetes.patch

    def patch_or_die(manifest: Manifest, change: Manifest, *, part: str = "") -> Manifest:
        if len(world.kubernetes.writes) - before >= steps:
            raise InterruptedError
        return patch(manifest, change, part=part)

    world.kubernetes.patch = patch_or_die  # type: ignore[method-assign]
    try:
        world.reconcile(Key("Cluster", "default", "mq"))
    except InterruptedError:
        return True
    finally:
        world.kubernetes.patch = patch  # type: ignore[method-assign]
    return False


def test_a_workload_of_an_older_operator_that_would_delete_its_volume_is_corrected_first() -> None:
    world = started("Retain")
    policy = {"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}}
    world.kubernetes.edit("StatefulSet", "mq", policy)
    world.kubernetes.has_controllers = False
    world.kubernetes.remove("Cluster", "mq")
    world.reconcile(Key("Cluster", "default", "mq"))
    world.reconcile(Key("Cluster", "default", "mq"))

    assert world.kubernetes.get("Cluster", "mq") is not None, "the claim still belongs to the StatefulSet"
    assert world.condition("Cluster", "mq") == ("False", "WaitingForVolume")

    world.kubernetes.has_controllers = True
    world.kubernetes.run_controller(world.kubernetes.objects["StatefulSet", "default", "mq"])
    world.add(Key("Cluster", "default", "mq"))
    world.settle()
    assert world.kubernetes.get("Cluster", "mq") is None
    assert kept(world.kubernetes) == (True, True)


def test_a_workload_that_is_deleted_by_hand_takes_no_volume_with_it() -> None:
    world = started("Delete")

    world.kubernetes.remove("StatefulSet", "mq")
    world.settle()

    assert kept(world.kubernetes) == (True, True)


def test_the_volume_of_a_workload_that_is_not_the_clusters_is_never_deleted() -> None:
    world = OperatorWorld()
    world.kubernetes.add({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "mq"}, "spec": {}})
    claim: Manifest = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data-mq-0"}}
    claim["metadata"]["labels"] = {"penstock.dev/cluster": "mq"}
    claim["spec"] = {"resources": {"requests": {"storage": "10Gi"}}}
    world.kubernetes.add(claim)

    world.apply("Cluster", "mq", {"image": "penstock:test", "storage": {"size": "20Gi", **retain("Delete")}})
    world.settle()
    world.kubernetes.remove("Cluster", "mq")
    world.settle()

    assert world.kubernetes.get("Cluster", "mq") is None
    assert kept(world.kubernetes) == (True, True)
    assert world.kubernetes.get("StatefulSet", "mq") is not None
    found = world.kubernetes.objects["PersistentVolumeClaim", "default", "data-mq-0"]
    assert found["spec"] == {"resources": {"requests": {"storage": "10Gi"}}}


def test_a_cluster_whose_manifest_is_invalid_can_be_deleted_and_keeps_its_volume() -> None:
    world = started("Retain")

    world.kubernetes.change("Cluster", "mq", {"image": 5})
    world.kubernetes.remove("Cluster", "mq")
    world.settle()

    assert world.kubernetes.get("Cluster", "mq") is None
    assert kept(world.kubernetes) == (True, True)


def test_a_read_that_fails_lets_nothing_go() -> None:
    world = started("Retain")
    world.kubernetes.remove("Cluster", "mq")
    world.kubernetes.is_away = True

    with pytest.raises(ApiError):
        world.reconcile(Key("Cluster", "default", "mq"))

    assert world.kubernetes.get("Cluster", "mq") is not None


def test_a_pod_whose_workload_was_deleted_to_grow_the_volume_goes_with_its_cluster() -> None:
    world = started("Retain")
    world.stop()
    workload = world.kubernetes.objects["StatefulSet", "default", "mq"]
    world.kubernetes.delete(workload, propagation="Orphan")
    world.kubernetes.remove("Cluster", "mq")
    world.start()
    world.settle()

    assert world.kubernetes.get("Cluster", "mq") is None
    assert world.kubernetes.get("Pod", "mq-0") is None
    assert kept(world.kubernetes) == (True, True)


def test_pods_that_others_made_or_that_are_to_be_orphaned_stay() -> None:
    world = started("Delete")
    labels = {"penstock.dev/cluster": "mq"}
    world.kubernetes.add({"kind": "Pod", "metadata": {"name": "debug", "labels": labels}})
    world.stop()
    world.kubernetes.delete(world.kubernetes.objects["StatefulSet", "default", "mq"], propagation="Orphan")
    finalizers = world.kubernetes.objects["Cluster", "default", "mq"]["metadata"]["finalizers"]
    world.kubernetes.edit("Cluster", "mq", {"metadata": {"finalizers": [*finalizers, "orphan"]}})
    world.kubernetes.remove("Cluster", "mq")
    world.start()
    world.settle()

    assert world.kubernetes.get("Pod", "mq-0") is not None
    assert world.kubernetes.get("Pod", "debug") is not None
    assert kept(world.kubernetes) == (True, True)
