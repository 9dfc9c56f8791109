"""The plan of a Cluster: which brokers, and a revision of their objects that an operator's upgrade never changes."""

import copy

import pytest

from penstock_operator.api import ClusterSpec
from penstock_operator.desired import Owner, plan
from penstock_operator.desired.cluster_plan import FIRST, IMAGES_MAX, NEWEST, revision, revisions
from support.kubernetes_fake import Manifest
from support.operator_world import OperatorWorld


def workload(image: str, recorded: str | None) -> Manifest:
    annotations = {} if recorded is None else {"penstock.dev/revision": recorded}
    pod = {"spec": {"containers": [{"name": "broker", "image": image}]}}
    return {"metadata": {"annotations": annotations}, "spec": {"template": pod}}


KNOWN = [{"image": "older", "revision": 1}, {"image": "recent", "revision": 2}]


@pytest.mark.parametrize(
    ("image", "there", "annotations", "expected"),
    [
        ("new", None, {}, NEWEST),
        ("older", None, {}, 1),
        ("a", workload("a", "2"), {}, 2),
        ("a", workload("a", "1"), {}, 1),
        ("a", workload("a", None), {}, FIRST),
        ("recent", workload("recent", None), {}, 2),
        ("recent", workload("recent", "2-x"), {}, 2),
        ("a", workload("a", "99"), {}, NEWEST),
        ("a", workload("a", "x"), {}, FIRST),
        ("new", workload("a", "1"), {}, NEWEST),
        ("older", workload("a", "2"), {}, 1),
        ("a", workload("a", "2"), {"penstock.dev/revision": "1"}, 1),
        ("a", workload("a", "2"), {"penstock.dev/revision": "99"}, 2),
        ("a", workload("a", "2"), {"penstock.dev/revision": "no"}, 2),
    ],
)
def test_the_revision_is_the_running_images_until_the_image_changes(
    image: str, there: Manifest | None, annotations: dict[str, str], expected: int
) -> None:
    assert revision(image, there, KNOWN, annotations) == expected


def test_the_revisions_of_the_last_images_are_remembered() -> None:
    known: list[Manifest] = []
    for number in range(IMAGES_MAX + 5):
        known = revisions(f"image-{number}", 1, known)
    known = revisions("image-7", 2, known)

    assert len(known) == IMAGES_MAX
    assert known[-1] == {"image": "image-7", "revision": 2}
    assert {"image": "image-7", "revision": 1} not in known


@pytest.mark.parametrize(("replicas", "ordinals"), [(0, ()), (1, (0,))])
def test_the_plan_names_the_brokers_that_should_run(replicas: int, ordinals: tuple[int, ...]) -> None:
    owner = Owner("mq", "shop", "uid", ClusterSpec.model_validate({"image": "x", "replicas": replicas}))

    assert plan(owner).ordinals == ordinals


def earlier() -> OperatorWorld:
    """Return a Cluster that an operator from before revisions made."""
    world = OperatorWorld()
    annotations = {"penstock.dev/revision": "1"}
    world.apply("Cluster", "mq", {"image": "penstock:test"}, annotations=annotations)
    world.settle()
    world.run_pod()
    world.settle()
    del world.kubernetes.objects["StatefulSet", "default", "mq"]["metadata"]["annotations"]
    del world.kubernetes.objects["Cluster", "default", "mq"]["metadata"]["annotations"]
    del world.kubernetes.objects["Cluster", "default", "mq"]["status"]["revisions"]
    world.stop()
    world.start()
    return world


def template(world: OperatorWorld) -> Manifest:
    found: Manifest = world.kubernetes.objects["StatefulSet", "default", "mq"]["spec"]["template"]
    return copy.deepcopy(found)


def configuration(world: OperatorWorld) -> str:
    return str(world.kubernetes.objects["ConfigMap", "default", "mq-config"]["data"]["penstock.toml"])


def test_an_upgrade_of_the_operator_changes_no_pod_and_gives_no_broker_a_setting_that_it_does_not_know() -> None:
    world = earlier()
    before, settings = template(world), configuration(world)

    world.look_again()
    world.look_again()

    assert template(world) == before
    assert configuration(world) == settings
    assert "default_password_file" not in settings
    assert ("delete", "Pod", "mq-0") not in world.kubernetes.writes


def test_another_change_of_an_earlier_image_keeps_its_revision_and_another_image_gets_the_newest() -> None:
    world = earlier()
    world.look_again()

    world.kubernetes.change("Cluster", "mq", {"podLabels": {"team": "shop"}})
    world.settle()
    assert "default_password_file" not in configuration(world)

    world.kubernetes.change("Cluster", "mq", {"image": "penstock:next"})
    world.settle()
    assert "default_password_file" in configuration(world)

    world.kubernetes.change("Cluster", "mq", {"image": "penstock:test"})
    world.settle()
    assert "default_password_file" not in configuration(world), "the image that it goes back to does not know it"


def test_a_revision_outlives_the_statefulset_that_is_made_again_to_grow_the_volume() -> None:
    world = earlier()
    world.look_again()
    world.kubernetes.kinds_lingering.add("StatefulSet")
    storage_class = {"kind": "StorageClass", "metadata": {"name": "fast", "namespace": ""}}
    world.kubernetes.objects["StorageClass", "", "fast"] = storage_class | {"allowVolumeExpansion": True}
    world.kubernetes.objects["PersistentVolumeClaim", "default", "data-mq-0"]["spec"]["storageClassName"] = "fast"
    before = template(world)

    world.kubernetes.change("Cluster", "mq", {"storage": {"size": "20Gi"}})
    world.settle()
    world.kubernetes.finish("StatefulSet", "mq")
    world.look_again()

    assert template(world) == before
    spec = world.kubernetes.objects["StatefulSet", "default", "mq"]["spec"]
    assert spec["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] == "20Gi"


def test_the_status_has_each_broker_with_its_volume_its_data_and_its_revision() -> None:
    world = OperatorWorld()
    world.start_cluster()

    (broker,) = world.kubernetes.objects["Cluster", "default", "mq"]["status"]["brokers"]

    assert broker == {
        "pod": "mq-0",
        "ready": True,
        "revision": "1",
        "storageId": "claim-1",
        "storageSize": "10Gi",
        "dataId": "data-1",
    }


def test_ready_replicas_are_counted_by_their_pods_and_a_stopped_broker_keeps_its_ids() -> None:
    world = OperatorWorld()
    world.start_cluster()
    status = world.kubernetes.objects["Cluster", "default", "mq"]["status"]
    assert (status["replicas"], status["readyReplicas"]) == (1, 1)

    world.kubernetes.change("Cluster", "mq", {"replicas": 0})
    world.kubernetes.remove("Pod", "mq-0")
    world.settle()

    status = world.kubernetes.objects["Cluster", "default", "mq"]["status"]
    assert (status["replicas"], status["readyReplicas"]) == (0, 0)
    assert status["brokers"][0]["storageId"] == "claim-1"
    assert status["brokers"][0]["dataId"] == "data-1"


def test_a_loss_is_seen_by_the_ids_of_a_status_from_before_brokers_had_their_own() -> None:
    world = OperatorWorld()
    world.start_cluster()
    world.kubernetes.objects["Cluster", "default", "mq"]["status"]["brokers"] = [{"pod": "mq-0"}]
    world.stop()
    world.kubernetes.objects["PersistentVolumeClaim", "default", "data-mq-0"]["metadata"]["uid"] = "claim-2"
    world.start()
    world.settle()

    assert world.condition("Cluster", "mq", "DataLost") == ("True", "VolumeReplaced")
