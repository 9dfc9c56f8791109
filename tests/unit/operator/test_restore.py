"""A Cluster that begins with a backup: the init container, until it has reported, and never again."""

import base64
import json
from typing import Any

import pytest

from penstock_operator.api.override import OWN_VOLUMES
from penstock_operator.engine import Key
from support.backup_jobs import S3, VOLUME, end_job
from support.kubernetes_fake import Manifest
from support.operator_world import OperatorWorld

CLUSTER = Key("Cluster", "default", "mq")
FILE = {"target": {"volume": {"claimName": "backups", "path": "old/monday.backup"}}}


@pytest.fixture
def world() -> OperatorWorld:
    return OperatorWorld()


def make(world: OperatorWorld, **spec: Any) -> None:
    world.apply("Cluster", "mq", {"image": "penstock:test", **spec})
    world.settle()


def pod_spec(world: OperatorWorld) -> dict[str, Any]:
    found: dict[str, Any] = world.kubernetes.objects["StatefulSet", "default", "mq"]["spec"]["template"]["spec"]
    return found


def init_container(world: OperatorWorld) -> Manifest | None:
    containers: list[Manifest] = pod_spec(world).get("initContainers") or []
    assert len(containers) < 2
    return containers[0] if containers else None


def run_pod(world: OperatorWorld, state: Manifest, *, is_ready: bool = False, **more: Any) -> None:
    """Run the pod, whose init container is in this state."""
    world.run_pod()
    ready = {"type": "Ready", "status": "True" if is_ready else "False"}
    told = {"initContainerStatuses": [{"name": "restore", "state": state, **more}], "conditions": [ready]}
    world.kubernetes.edit("Pod", "mq-0", {"status": told})


def report(*, restored: bool) -> Manifest:
    said = json.dumps({"data_dir": "/data", "restored": restored, "vhosts": ["/"]})
    return {"terminated": {"exitCode": 0, "message": said}}


def restore_status(world: OperatorWorld) -> Any:
    return world.kubernetes.objects["Cluster", "default", "mq"].get("status", {}).get("restore")


def test_an_init_container_restores_the_file_before_the_broker_starts(world: OperatorWorld) -> None:
    make(world, restoreFrom=FILE)
    container, spec = init_container(world), pod_spec(world)

    assert container is not None
    assert container["command"][3:] == [
        *("sh", "restore", "/backup/old/monday.backup", "--data-dir", "/data", "--if-empty", "--output", "json"),
    ]
    assert container["image"] == "penstock:test"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert {each["name"]: each["mountPath"] for each in container["volumeMounts"]} == {
        "tmp": "/tmp",
        "backup": "/backup",
        "data": "/data",
    }
    assert {"name": "backup", "persistentVolumeClaim": {"claimName": "backups"}} in spec["volumes"]


def test_a_bucket_needs_no_volume(world: OperatorWorld) -> None:
    make(world, restoreFrom={"target": {"s3": {**S3["s3"], "key": "mq/monday.backup"}}})
    container = init_container(world)

    assert container is not None
    assert "s3://backups/mq/monday.backup" in container["command"]
    assert [each["name"] for each in pod_spec(world)["volumes"]] == ["config", "tmp", "administrator"]


def test_after_the_restore_the_pod_depends_on_no_backup(world: OperatorWorld) -> None:
    make(world, restoreFrom=FILE)
    run_pod(world, report(restored=True))
    world.settle()
    assert restore_status(world) == {
        "source": "volume backups: old/monday.backup",
        "restored": True,
        "at": "2026-01-01T00:00:00Z",
    }
    world.look_again()

    assert init_container(world) is None
    assert "backup" not in [each["name"] for each in pod_spec(world)["volumes"]]
    assert not [event for event in world.kubernetes.events if event[2] == "DriftRepaired"]
    world.look_again()
    assert restore_status(world)["restored"] is True


def test_a_restored_directory_is_nobody_s_loss(world: OperatorWorld) -> None:
    """Its id is a new one, and the Cluster had none before."""
    make(world, restoreFrom=FILE)
    run_pod(world, report(restored=True), is_ready=True)
    world.settle()
    world.look_again()
    run_pod(world, {}, is_ready=True)
    world.settle()

    assert world.condition("Cluster", "mq") == ("True", "Serving")
    assert world.condition("Cluster", "mq", "DataLost") == ("", "")


def test_a_volume_that_is_lost_later_is_told_and_nothing_is_restored(world: OperatorWorld) -> None:
    make(world, restoreFrom=FILE)
    run_pod(world, report(restored=True), is_ready=True)
    world.settle()
    world.look_again()
    world.run_pod(uid="pod-2", claim="claim-2")
    world.settle()

    assert world.condition("Cluster", "mq", "DataLost") == ("True", "VolumeReplaced")
    assert init_container(world) is None


def test_a_volume_with_data_keeps_it_and_the_status_says_so(world: OperatorWorld) -> None:
    make(world, restoreFrom=FILE)
    run_pod(world, report(restored=False))
    world.settle()

    assert restore_status(world)["restored"] is False


@pytest.mark.parametrize("message", ["", "x" * 1_000_000, '{"data_dir": "/data", "restored": true, "vhosts": ["a", "b'])
def test_a_report_that_is_cut_off_ends_the_restore_too(world: OperatorWorld, message: str) -> None:
    make(world, restoreFrom=FILE)
    run_pod(world, {"terminated": {"exitCode": 0, "message": message}})
    world.settle()

    assert restore_status(world)["restored"] is True


def test_a_restore_that_fails_is_told_with_its_last_words(world: OperatorWorld) -> None:
    make(world, restoreFrom=FILE)
    ended = {"terminated": {"exitCode": 1, "message": "log\npenstock: '/backup/old/monday.backup' is cut off"}}
    run_pod(world, {"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ended)
    world.settle()

    assert world.condition("Cluster", "mq") == ("False", "RestoreFailed")
    (ready,) = (each for each in conditions(world) if each["type"] == "Ready")
    assert "is cut off" in ready["message"]
    assert restore_status(world) is None


def test_a_restore_that_runs_is_told(world: OperatorWorld) -> None:
    make(world, restoreFrom=FILE)
    run_pod(world, {"running": {}})
    world.settle()

    assert world.condition("Cluster", "mq") == ("False", "Restoring")


def test_a_cluster_waits_for_its_backup_and_starts_no_empty_broker(world: OperatorWorld) -> None:
    make(world, restoreFrom={"backupName": "monday"})
    assert world.condition("Cluster", "mq") == ("False", "BackupNotFound")
    assert world.kubernetes.get("StatefulSet", "mq") is None

    world.apply("Backup", "monday", {"clusterRef": {"name": "gone"}, "target": VOLUME})
    world.settle()
    world.reconcile(CLUSTER)
    assert world.condition("Cluster", "mq") == ("False", "BackupNotCompleted")
    assert world.kubernetes.get("StatefulSet", "mq") is None

    world.kubernetes.edit("Backup", "monday", {"status": {"phase": "Completed"}})
    world.reconcile(CLUSTER)
    container = init_container(world)
    assert container is not None
    assert "/backup/monday.backup" in container["command"]


def test_a_cluster_is_made_anew_from_the_backup_of_the_one_before(world: OperatorWorld) -> None:
    world.start_cluster(storage={"retain": {"whenDeleted": "Delete"}})
    world.apply("Backup", "monday", {"target": VOLUME})
    world.settle()
    end_job(world)
    world.settle()
    world.kubernetes.remove("Cluster", "mq")
    world.settle()

    make(world, restoreFrom={"backupName": "monday"})

    assert init_container(world) is not None


def test_the_users_of_the_backup_do_not_lock_the_operator_out(world: OperatorWorld) -> None:
    """The restored administrator has the password of the old Cluster until the broker has read the file."""
    make(world, restoreFrom=FILE)
    run_pod(world, report(restored=True), is_ready=True)
    assert world.broker is not None
    world.broker.passwords["admin"] = "of the old Cluster"
    world.settle()
    assert world.condition("Cluster", "mq") == ("False", "CredentialsRejected")

    secret = world.kubernetes.objects["Secret", "default", "mq-default-user"]
    world.broker.passwords["admin"] = base64.b64decode(secret["data"]["password"]).decode()
    world.look_again()
    run_pod(world, {}, is_ready=True)
    world.settle()

    assert world.condition("Cluster", "mq") == ("True", "Serving")


def test_restore_from_that_is_taken_away_starts_the_broker_empty(world: OperatorWorld) -> None:
    make(world, restoreFrom=FILE)
    manifest = world.kubernetes.objects["Cluster", "default", "mq"]
    del manifest["spec"]["restoreFrom"]
    world.kubernetes.change("Cluster", "mq", {})
    world.settle()

    assert init_container(world) is None


@pytest.mark.parametrize("step", range(1, 14))
def test_a_restore_ends_whenever_the_operator_dies(world: OperatorWorld, step: int) -> None:
    left = [step]

    class DiedError(Exception):
        pass

    def before(write: Any) -> Any:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise DiedError
            return write(*arguments, **options)

        return wrapped

    for name in ("apply", "patch", "create"):
        setattr(world.kubernetes, name, before(getattr(world.kubernetes, name)))

    def settle() -> None:
        try:
            world.settle()
        except DiedError:
            world.stop()
            world.start()
            world.settle()

    world.apply("Cluster", "mq", {"image": "penstock:test", "restoreFrom": FILE})
    settle()
    assert init_container(world) is not None
    run_pod(world, report(restored=True))
    settle()
    world.add(CLUSTER)
    settle()
    world.add(CLUSTER)
    settle()

    assert restore_status(world)["restored"] is True
    assert init_container(world) is None


def conditions(world: OperatorWorld) -> list[Manifest]:
    found: list[Manifest] = world.kubernetes.objects["Cluster", "default", "mq"]["status"]["conditions"]
    return found


def test_an_extra_volume_takes_no_name_of_the_restore(world: OperatorWorld) -> None:
    make(world, restoreFrom=FILE)

    assert {each["name"] for each in pod_spec(world)["volumes"]} <= OWN_VOLUMES
