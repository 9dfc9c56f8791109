"""Backups: made, scheduled, deleted with their files, and a new Cluster that begins with one."""

import json

import pytest

from e2e.kubectl import Kubectl, Manifest, until
from e2e.manifests import IMAGE, RESTRICTED, ours, queue, small_cluster
from e2e.test_4_life import in_cluster, made_namespace

NAMESPACE, CLUSTER = "backups", "vault"
KIND, SCHEDULE = "backups.penstock.dev", "scheduledbackups.penstock.dev"
VOLUME = {"volume": {"claimName": "backups"}}
MESSAGES = """
import os, sys, penstock
with penstock.connect(os.environ["URI"], timeout=20) as broker:
    if sys.argv[1] == "publish":
        numbers = range(int(sys.argv[2]), int(sys.argv[3]))
        print(broker.publish_many([str(each).encode() for each in numbers], routing_key="kept", mandatory=True))
    else:
        found = []
        for message in broker.consume("kept", idle_timeout=5):
            found.append(int(message.body))
            message.ack()
        print(*found)
"""
LIST = """
import pathlib
print(*sorted(str(path.relative_to("/backup")) for path in pathlib.Path("/backup").rglob("*") if path.is_file()))
"""


@pytest.fixture(scope="module", autouse=True)
def vault(kubectl: Kubectl) -> None:
    """Make a Cluster with a queue, a volume for backups, and a pod that lists its files."""
    made_namespace(kubectl, NAMESPACE)
    kubectl.apply(claim(), cluster(), in_cluster(queue("kept"), CLUSTER), lister(), namespace=NAMESPACE)
    kubectl.wait_ready("queues.penstock.dev/kept", NAMESPACE)
    kubectl.wait_ready("pod/look", NAMESPACE)


def test_a_backup_is_stored_and_its_status_tells_what_it_is(kubectl: Kubectl) -> None:
    assert messages(kubectl, "publish", "0", "500") == "500"
    kubectl.apply(backup("before"), namespace=NAMESPACE)
    completed(kubectl, "before")

    found = (kubectl.get(KIND, "before", NAMESPACE) or {})["status"]
    assert found["bytes"] > 500
    assert len(found["sha256"]) == 64
    assert found["vhosts"] == 1
    assert found["target"] == "volume backups: before.backup"
    assert found["dataId"] == (kubectl.get("psc", CLUSTER, NAMESPACE) or {})["status"]["dataId"]
    assert files(kubectl) == ["before.backup"]


def test_a_file_that_exists_is_not_overwritten_and_the_status_says_so(kubectl: Kubectl) -> None:
    kubectl.apply(
        backup("again", target={"volume": {"claimName": "backups", "path": "before.backup"}}), namespace=NAMESPACE
    )

    until(lambda: kubectl.condition(KIND, "again", "Completed", NAMESPACE)[1] == "BackupFailed", "it fails", 240)
    assert "exists" in kubectl.condition(KIND, "again", "Completed", NAMESPACE)[2]

    kubectl("delete", KIND, "again", "--namespace", NAMESPACE, "--timeout=60s")
    assert files(kubectl) == ["before.backup"]


def test_a_schedule_makes_its_first_backup_at_once(kubectl: Kubectl) -> None:
    template = {"target": {"volume": {"claimName": "backups", "path": "scheduled/"}}, "deletionPolicy": "Delete"}
    spec = {"schedule": "0 3 1 1 *", "timeZone": "Europe/Oslo", "immediate": True, "template": template}
    kubectl.apply(ours("ScheduledBackup", "yearly", spec, CLUSTER), namespace=NAMESPACE)
    kubectl.wait_ready(f"{SCHEDULE}/yearly", NAMESPACE)

    until(lambda: scheduled(kubectl).get("lastCompletedName"), "the first one is completed", 120)

    name = scheduled(kubectl)["lastCompletedName"]
    assert scheduled(kubectl)["nextScheduleTime"].endswith("-01-01T02:00:00Z")
    assert files(kubectl) == ["before.backup", f"scheduled/{name}.backup"]
    assert len(kubectl.list(KIND, NAMESPACE)) == 2


def test_a_file_goes_with_its_backup_where_the_manifest_says_so(kubectl: Kubectl) -> None:
    name = scheduled(kubectl)["lastCompletedName"]
    kubectl("delete", f"{SCHEDULE}/yearly", "--namespace", NAMESPACE, "--timeout=30s")
    assert kubectl.get(KIND, name, NAMESPACE) is not None

    kubectl("delete", KIND, name, "--namespace", NAMESPACE, "--timeout=180s")

    assert files(kubectl) == ["before.backup"]


def test_a_new_cluster_begins_with_exactly_what_was_confirmed_before_the_backup(kubectl: Kubectl) -> None:
    assert messages(kubectl, "publish", "500", "700") == "200"
    kubectl("delete", "psc", CLUSTER, "--namespace", NAMESPACE, "--timeout=60s")
    until(lambda: kubectl.get("pvc", f"data-{CLUSTER}-0", NAMESPACE) is None, "the volume is gone", 120)

    kubectl.apply(cluster(restoreFrom={"backupName": "before"}), namespace=NAMESPACE)
    until(lambda: restored(kubectl), "it is restored", 180)
    until(lambda: has_no_init_container(kubectl), "the pod depends on the backup no longer", 120)
    until(lambda: is_serving(kubectl), "it serves", 120)

    assert restored(kubectl)["restored"] is True
    assert messages(kubectl, "consume") == " ".join(str(number) for number in range(500))
    assert kubectl.condition("psc", CLUSTER, "DataLost", NAMESPACE)[0] == ""
    done = kubectl.attempt(
        ["kubectl", "apply", "--namespace", NAMESPACE, "-f", "-"],
        stdin=json.dumps(cluster(restoreFrom={"backupName": "other"})),
    )
    assert "restoreFrom counts only when a Cluster is made" in done.stderr


def test_a_namespace_with_backups_that_delete_their_files_goes(kubectl: Kubectl) -> None:
    kubectl.apply(backup("last", deletionPolicy="Delete"), namespace=NAMESPACE)
    completed(kubectl, "last")

    kubectl("delete", "namespace", NAMESPACE, "--wait=false")

    kubectl("wait", "--for=delete", f"namespace/{NAMESPACE}", "--timeout=180s")


def cluster(**spec: object) -> Manifest:
    storage = {"size": "1Gi", "retain": {"whenDeleted": "Delete"}}
    return small_cluster(CLUSTER, storage=storage, **spec)


def backup(name: str, **spec: object) -> Manifest:
    return ours("Backup", name, {"target": VOLUME, **spec}, CLUSTER)


def claim() -> Manifest:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "backups"}, "spec": spec}


def lister() -> Manifest:
    """Return a pod that has the volume of the backups."""
    container = {
        "name": "look",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", "import time; time.sleep(86400)"],
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": "backups", "mountPath": "/backup"}],
    }
    volume = {"name": "backups", "persistentVolumeClaim": {"claimName": "backups"}}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container], "volumes": [volume]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "look"}, "spec": spec}


def files(kubectl: Kubectl) -> list[str]:
    return kubectl("exec", "look", "--namespace", NAMESPACE, "--", "python3", "-c", LIST).split()


def completed(kubectl: Kubectl, name: str) -> None:
    until(lambda: kubectl.condition(KIND, name, "Completed", NAMESPACE)[0] in {"True", "False"}, "it has ended", 180)
    assert kubectl.condition(KIND, name, "Completed", NAMESPACE)[:2] == ("True", "Completed")


def scheduled(kubectl: Kubectl) -> Manifest:
    found: Manifest = (kubectl.get(SCHEDULE, "yearly", NAMESPACE) or {}).get("status", {})
    return found


def restored(kubectl: Kubectl) -> Manifest:
    found: Manifest = (kubectl.get("psc", CLUSTER, NAMESPACE) or {}).get("status", {}).get("restore") or {}
    return found


def has_no_init_container(kubectl: Kubectl) -> bool:
    pod = kubectl.get("pod", f"{CLUSTER}-0", NAMESPACE)
    return pod is not None and not pod["spec"].get("initContainers")


def is_serving(kubectl: Kubectl) -> bool:
    """Return whether the pod is ready and the Cluster says so: its condition may be of the pod before."""
    pod = kubectl.condition("pod", f"{CLUSTER}-0", "Ready", NAMESPACE)[0]
    return pod == "True" and kubectl.condition("psc", CLUSTER, "Ready", NAMESPACE)[0] == "True"


def messages(kubectl: Kubectl, *words: str) -> str:
    uri = f"penstock://admin:{kubectl.password(f'{CLUSTER}-default-user', NAMESPACE)}@127.0.0.1:5680/"
    in_broker = ["exec", f"{CLUSTER}-0", "--namespace", NAMESPACE, "--", "env", f"URI={uri}", "python3", "-c"]
    return kubectl(*in_broker, MESSAGES, *words).strip()
