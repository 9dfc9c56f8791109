"""Life of Clusters: volumes kept, deleted and lost, images that cannot be pulled, namespaces deleted."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

from e2e.kubectl import CommandError, Kubectl, until
from e2e.manifests import IMAGE, ours, queue, small_cluster

ROOT = Path(__file__).resolve().parents[1]
AUTHORITY = trustme.CA()
NAMESPACES = ("image", "keep", "drop", "fate", "tls", "local")
OPERATOR = "deployment/penstock-operator"
# Below the kubelet's own folder, so that its clean-up includes it.
LOCAL_PATH = "/var/lib/kubelet/penstock-local"
WIPE = """
import shutil, pathlib
for path in pathlib.Path("/data").iterdir():
    shutil.rmtree(path) if path.is_dir() else path.unlink()
"""
PUBLISH = """
import os, sys, penstock
with penstock.connect(os.environ["URI"], timeout=20) as broker:
    if sys.argv[1] == "publish":
        print(broker.publish_many([b"kept"] * 100, routing_key="kept"))
    else:
        print(broker.admin.get_queue("kept").ready_count)
"""


def test_the_messages_of_a_cluster_that_was_deleted_are_there_when_it_is_made_anew(kubectl: Kubectl) -> None:
    namespace = made_namespace(kubectl, "keep")
    kubectl.apply(small_cluster("keep"), in_cluster(queue("kept"), "keep"), namespace=namespace)
    kubectl.wait_ready("queues.penstock.dev/kept", namespace)
    assert in_pod(kubectl, namespace, "keep", "publish") == "100"

    kubectl("delete", "psc", "keep", "--namespace", namespace, "--timeout=60s")
    until(lambda: kubectl.get("pod", "keep-0", namespace) is None, "the pod is gone")
    kubectl.apply(small_cluster("keep"), namespace=namespace)
    until(lambda: kubectl.condition("psc", "keep", namespace=namespace)[0] == "True", "it serves again")

    assert in_pod(kubectl, namespace, "keep", "count") == "100"
    assert kubectl.condition("psc", "keep", "DataLost", namespace)[0] == ""


def test_a_cluster_that_is_deleted_with_its_data_leaves_nothing(kubectl: Kubectl) -> None:
    namespace = made_namespace(kubectl, "drop")
    storage = {"size": "1Gi", "retain": {"whenDeleted": "Delete"}}
    kubectl.apply(small_cluster("drop", storage=storage), namespace=namespace)
    kubectl.wait_ready("psc/drop", namespace)

    kubectl("delete", "psc", "drop", "--namespace", namespace, "--timeout=60s")

    until(lambda: not kubectl.list("pvc", namespace), "the volume is gone")
    until(lambda: kubectl.get("secret", "drop-default-user", namespace) is None, "the Secret is gone")


def test_a_volume_has_the_fate_that_was_said_while_the_operator_was_away(kubectl: Kubectl) -> None:
    namespace = made_namespace(kubectl, "fate")
    storage = {"size": "1Gi", "retain": {"whenDeleted": "Delete"}}
    kubectl.apply(small_cluster("fate", storage=storage), in_cluster(queue("kept"), "fate"), namespace=namespace)
    kubectl.wait_ready("queues.penstock.dev/kept", namespace)
    assert in_pod(kubectl, namespace, "fate", "publish") == "100"

    delete_behind_the_operator(kubectl, namespace, "fate", "Retain")
    (claim,) = kubectl.list("pvc", namespace)
    assert "deletionTimestamp" not in claim["metadata"], "the volume goes"
    assert kubectl.get("secret", "fate-default-user", namespace) is not None

    kubectl.apply(small_cluster("fate"), namespace=namespace)
    until(lambda: kubectl.condition("psc", "fate", namespace=namespace)[0] == "True", "it serves again", 90)
    assert in_pod(kubectl, namespace, "fate", "count") == "100"

    delete_behind_the_operator(kubectl, namespace, "fate", "Delete")
    until(lambda: not kubectl.list("pvc", namespace), "the volume is gone")
    until(lambda: kubectl.get("secret", "fate-default-user", namespace) is None, "the Secret is gone")


def test_a_volume_that_is_lost_is_told_of_and_what_manifests_say_is_declared_again(kubectl: Kubectl) -> None:
    namespace = "keep"
    kubectl("delete", "pvc", "data-keep-0", "--namespace", namespace, "--wait=false")
    kubectl("delete", "pod", "keep-0", "--namespace", namespace, "--wait=false")

    until(lambda: kubectl.condition("psc", "keep", "DataLost", namespace)[1] == "VolumeReplaced", "it is told of", 90)
    kubectl.wait_ready("psc/keep", namespace)
    until(lambda: in_pod(kubectl, namespace, "keep", "count") == "0", "the queue is declared again, and empty")

    volume = kubectl("get", "psc", "keep", "--namespace", namespace, "--output", "jsonpath={.status.storageId}")
    kubectl("annotate", "psc", "keep", "--namespace", namespace, f"penstock.dev/data-loss-seen={volume}")
    until(lambda: kubectl.condition("psc", "keep", "DataLost", namespace)[0] == "", "it was seen")


def test_a_disk_that_was_wiped_is_told_of_and_waits_where_the_policy_is_manual(kubectl: Kubectl) -> None:
    namespace = "keep"
    kubectl.wait_ready("queues.penstock.dev/kept", namespace)
    patch(kubectl, "keep", namespace, {"storage": {"lossPolicy": "Manual"}})

    kubectl("exec", "keep-0", "--namespace", namespace, "--", "python3", "-c", WIPE)
    kubectl("delete", "pod", "keep-0", "--namespace", namespace, "--grace-period=0", "--force", "--wait=false")

    until(lambda: kubectl.condition("psc", "keep", "DataLost", namespace)[1] == "DataReplaced", "it is told of", 120)
    until(lambda: kubectl.condition("psc", "keep", "Ready", namespace)[1] == "DataLost", "it waits")
    kind = "queues.penstock.dev"
    until(lambda: kubectl.condition(kind, "kept", "Ready", namespace)[1] == "DataLost", "its queue waits")

    seen = kubectl("get", "psc", "keep", "--namespace", namespace, "--output", "jsonpath={.status.dataId}")
    kubectl("annotate", "psc", "keep", "--namespace", namespace, f"penstock.dev/data-loss-seen={seen}", "--overwrite")
    kubectl.wait_ready("psc/keep", namespace)
    kubectl.wait_ready("queues.penstock.dev/kept", namespace)
    assert in_pod(kubectl, namespace, "keep", "count") == "0"


def test_a_broker_on_a_local_volume_stays_where_its_disk_is(kubectl: Kubectl) -> None:
    namespace = made_namespace(kubectl, "local")
    node = kubectl("get", "nodes", "--output", "jsonpath={.items[0].metadata.name}")
    make_directory(kubectl, LOCAL_PATH)
    volume = ["--set", f"localVolumes[0].node={node}", "--set", f"localVolumes[0].path={LOCAL_PATH}"]
    small = [
        "--set",
        "storage.size=1Gi",
        "--set",
        "resources.requests.cpu=50m",
        "--set",
        "resources.requests.memory=128Mi",
    ]
    kubectl.helm("install", "local", str(ROOT / "charts" / "penstock"), "--namespace", namespace, *volume, *small)
    kubectl.wait_ready("psc/local", namespace)
    kubectl.apply(in_cluster(queue("kept"), "local"), namespace=namespace)
    kubectl.wait_ready("queues.penstock.dev/kept", namespace)
    assert in_pod(kubectl, namespace, "local", "publish") == "100"

    before = kubectl("get", "pod", "local-0", "--namespace", namespace, "--output", "jsonpath={.metadata.uid}")
    kubectl("delete", "pod", "local-0", "--namespace", namespace)
    until(
        lambda: (kubectl.get("pod", "local-0", namespace) or {"metadata": {}})["metadata"].get("uid") != before,
        "another",
    )
    kubectl("wait", "--for=condition=Ready", "pod/local-0", "--namespace", namespace, "--timeout=120s")
    until(lambda: kubectl.condition("psc", "local", namespace=namespace)[0] == "True", "it serves again")
    assert in_pod(kubectl, namespace, "local", "count") == "100"
    patch(kubectl, "local", namespace, {"storage": {"size": "2Gi"}})
    until(
        lambda: kubectl.condition("psc", "local", "StorageHealthy", namespace)[1] == "ExpansionUnsupported", "no growth"
    )
    patch(kubectl, "local", namespace, {"storage": {"size": "1Gi"}})
    until(lambda: kubectl.condition("psc", "local", "StorageHealthy", namespace)[0] == "True", "the size is put back")

    kubectl.helm("uninstall", "local", "--namespace", namespace)
    kept = kubectl("get", "pv", "--selector", "app.kubernetes.io/instance=local", "--output", "name")
    assert kept.strip(), "the volume went with the chart"
    kubectl("delete", "pvc", "data-local-0", "--namespace", namespace, "--wait=false")
    kubectl("delete", *kept.split(), "storageclass/local-local-local", "--wait=false")


def test_an_image_that_cannot_be_pulled_is_named(kubectl: Kubectl) -> None:
    namespace = made_namespace(kubectl, "image")
    kubectl.apply(small_cluster("image", image="localhost/nowhere:1", imagePullPolicy="Never"), namespace=namespace)

    until(lambda: kubectl.condition("psc", "image", namespace=namespace)[1] == "ImagePullFailed", "it is told of")

    assert "localhost/nowhere:1" in kubectl.condition("psc", "image", namespace=namespace)[2]
    kubectl.apply(small_cluster("image"), namespace=namespace)
    until(lambda: kubectl.condition("psc", "image", namespace=namespace)[0] == "True", "the right one is taken", 90)


def test_a_stopped_cluster_keeps_its_volume(kubectl: Kubectl) -> None:
    kubectl("scale", "psc", "image", "--namespace", "image", "--replicas=0")
    until(lambda: kubectl.condition("psc", "image", namespace="image")[1] == "Stopped", "it is stopped")

    kubectl("scale", "psc", "image", "--namespace", "image", "--replicas=1")
    until(lambda: kubectl.condition("psc", "image", namespace="image")[0] == "True", "it serves again", 90)
    assert kubectl.condition("psc", "image", "DataLost", "image")[0] == ""


def test_an_administrators_secret_that_is_deleted_locks_nobody_out(kubectl: Kubectl) -> None:
    namespace, secret = "image", "image-default-user"
    before, pod = kubectl.password(secret, namespace), pod_uid(kubectl, namespace, "image")

    kubectl("delete", "secret", secret, "--namespace", namespace)
    until(lambda: kubectl.password(secret, namespace) != before, "there is another Secret")
    opens(kubectl, namespace, "image", before)
    # The kubelet updates the file in the pod at its own pace.
    until(lambda: is_open(kubectl, namespace, "image", kubectl.password(secret, namespace)), "the broker follows", 180)
    until(lambda: synced(kubectl, namespace, "image") == ("True", "Synced"), "the Cluster says so")
    opens(kubectl, namespace, "image", before)

    made = kubectl.password(secret, namespace)
    kubectl("annotate", "psc", "image", "--namespace", namespace, "penstock.dev/rotate-password=1")
    until(lambda: kubectl.password(secret, namespace) != made, "it is rotated")
    # The condition is from before until the operator has seen the change.
    until(lambda: is_open(kubectl, namespace, "image", kubectl.password(secret, namespace)), "the broker follows", 180)
    until(lambda: synced(kubectl, namespace, "image") == ("True", "Synced"), "the Cluster says so")
    assert kubectl.condition("psc", "image", namespace=namespace)[:2] == ("True", "Serving")
    assert pod_uid(kubectl, namespace, "image") == pod


def test_what_others_add_to_a_service_is_repaired(kubectl: Kubectl) -> None:
    namespace, service = "image", ("service", "image", "--namespace", "image")
    change = '{"spec":{"selector":{"tier":"gold"},"ports":[{"name":"more","port":1}]}}'

    kubectl("patch", *service, "--type=strategic", "--patch", change)
    until(lambda: "gold" not in kubectl("get", *service, "--output", "jsonpath={.spec.selector}"), "the selector")
    until(lambda: len(kubectl("get", *service, "--output", "jsonpath={.spec.ports[*].port}").split()) == 3, "the ports")
    until(lambda: kubectl.condition("psc", "image", namespace=namespace)[:2] == ("True", "Serving"), "it serves")
    opens(kubectl, namespace, "image", kubectl.password("image-default-user", namespace))

    kubectl("label", *service, "penstock.dev/cluster-")
    until(
        lambda: "penstock.dev/cluster" in kubectl("get", *service, "--output", "jsonpath={.metadata.labels}"), "label"
    )
    assert kubectl.condition("psc", "image", "Applied", namespace)[:2] == ("True", "Applied")


def test_a_certificate_is_served_and_replaced_without_a_restart(kubectl: Kubectl) -> None:
    namespace = made_namespace(kubectl, "tls")
    put_certificate(kubectl, namespace)
    kubectl.apply(small_cluster("tls", tls={"secretName": "tls"}), namespace=namespace)
    kubectl.wait_ready("psc/tls", namespace)
    kubectl.apply(in_cluster(queue("kept"), "tls"), namespace=namespace)
    kubectl.wait_ready("queues.penstock.dev/kept", namespace)
    before = kubectl.condition("psc", "tls", "TLSValid", namespace)
    pod = kubectl("get", "pod", "tls-0", "--namespace", namespace, "--output", "jsonpath={.metadata.uid}")
    assert before[:2] == ("True", "Valid")

    put_certificate(kubectl, namespace, days=20)

    def is_replaced() -> bool:
        kubectl("annotate", "psc", "tls", "--namespace", namespace, f"look={time.monotonic()}", "--overwrite")
        return kubectl.condition("psc", "tls", "TLSValid", namespace)[2] != before[2]

    until(is_replaced, "the new certificate is served", 180)
    assert kubectl.condition("psc", "tls", "TLSValid", namespace)[0] == "True"
    again = kubectl("get", "pod", "tls-0", "--namespace", namespace, "--output", "jsonpath={.metadata.uid}")
    assert again == pod
    ask = ["python3", "/packages/bin/penstock", "status", "--uri", "penstock://admin:x@127.0.0.1:5680/"]
    done = kubectl.attempt(["kubectl", "exec", "tls-0", "--namespace", namespace, "--", *ask])
    assert done.returncode != 0, "plaintext was served"


def test_clients_without_a_certificate_are_refused_where_one_is_asked_for(kubectl: Kubectl) -> None:
    shown = AUTHORITY.issue_cert("operator")
    certificate = b"".join(each.bytes() for each in shown.cert_chain_pems).decode()
    put_secret(kubectl, "tls", "clients", {"ca.crt": AUTHORITY.cert_pem.bytes().decode()}, "Opaque")
    key = shown.private_key_pem.bytes().decode()
    put_secret(kubectl, "tls", "operator-tls", {"tls.crt": certificate, "tls.key": key})
    clients = {"authoritySecretName": "clients", "operatorSecretName": "operator-tls"}
    patch(kubectl, "tls", "tls", {"tls": {"clientCertificates": clients}})

    def is_asked_for() -> bool:
        pod = kubectl.get("pod", "tls-0", "tls") or {"spec": {"volumes": []}}
        return any(each["name"] == "clients" for each in pod["spec"]["volumes"])

    until(is_asked_for, "the broker is restarted", 120)
    until(lambda: kubectl.condition("psc", "tls", namespace="tls")[:2] == ("True", "Serving"), "it serves", 120)
    kubectl.apply(in_cluster(queue("shown"), "tls"), namespace="tls")
    kubectl.wait_ready("queues.penstock.dev/shown", "tls")

    uri = (
        f"penstocks://admin:{kubectl.password('tls-default-user', 'tls')}@tls.tls.svc:5680/?ca=/etc/penstock-tls/ca.crt"
    )
    ask = [
        "exec",
        "tls-0",
        "--namespace",
        "tls",
        "--",
        "python3",
        "/packages/bin/penstock",
        "status",
        "--output",
        "json",
        "--uri",
    ]
    assert "version" in kubectl(*ask, f"{uri}&cert=/etc/penstock-tls/tls.crt&key=/etc/penstock-tls/tls.key")
    assert kubectl.attempt(["kubectl", *ask, uri]).returncode != 0, "somebody without a certificate got in"


def test_a_namespace_that_is_deleted_does_not_hang(kubectl: Kubectl) -> None:
    user = ours("User", "web", {"name": "web"})
    gone = in_cluster(queue("gone", deletionPolicy="Delete"), "image")
    kubectl.apply(gone, in_cluster(user, "image"), namespace="image")
    kubectl.wait_ready("queues.penstock.dev/gone", "image")

    for namespace in NAMESPACES:
        kubectl("delete", "namespace", namespace, "--wait=false")

    for namespace in NAMESPACES:
        kubectl("wait", "--for=delete", f"namespace/{namespace}", "--timeout=120s")


@contextmanager
def operator_away(kubectl: Kubectl) -> Iterator[None]:
    kubectl("scale", OPERATOR, "--replicas=0")
    pods = ("get", "pods", "--selector", "app.kubernetes.io/name=penstock-operator", "--output", "name")
    until(lambda: not kubectl(*pods).strip(), "the operator is away")
    try:
        yield
    finally:
        kubectl("scale", OPERATOR, "--replicas=1")
        kubectl("rollout", "status", OPERATOR, "--timeout=120s")


def delete_behind_the_operator(kubectl: Kubectl, namespace: str, cluster: str, when_deleted: str) -> None:
    """Change the fate of the volume and delete the Cluster while the operator is away; wait until its pod is gone."""
    with operator_away(kubectl):
        patch(kubectl, cluster, namespace, {"storage": {"retain": {"whenDeleted": when_deleted}}})
        kubectl("delete", "psc", cluster, "--namespace", namespace, "--wait=false")
    until(lambda: kubectl.get("psc", cluster, namespace) is None, "the Cluster is gone")
    until(lambda: kubectl.get("pod", f"{cluster}-0", namespace) is None, "the pod is gone")


def pod_uid(kubectl: Kubectl, namespace: str, cluster: str) -> str:
    return kubectl("get", "pod", f"{cluster}-0", "--namespace", namespace, "--output", "jsonpath={.metadata.uid}")


def synced(kubectl: Kubectl, namespace: str, cluster: str) -> tuple[str, str]:
    return kubectl.condition("psc", cluster, "PasswordSynced", namespace)[:2]


def opens(kubectl: Kubectl, namespace: str, cluster: str, password: str) -> None:
    """Check that this password of the administrator opens the broker by its Service."""
    uri = f"penstock://admin:{password}@{cluster}.{namespace}.svc:5680/"
    command = ["python3", "/packages/bin/penstock", "status", "--output", "json", "--uri", uri]
    assert "version" in kubectl("exec", f"{cluster}-0", "--namespace", namespace, "--", *command)


def is_open(kubectl: Kubectl, namespace: str, cluster: str, password: str) -> bool:
    try:
        opens(kubectl, namespace, cluster, password)
    except CommandError:
        return False
    return True


def made_namespace(kubectl: Kubectl, name: str) -> str:
    """Make a namespace that admits restricted pods only, which ours must be."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    return name


def put_certificate(kubectl: Kubectl, namespace: str, days: int = 10) -> None:
    """Create a certificate of one shared CA for the Service of the Cluster tls."""
    until_when = datetime.now(UTC) + timedelta(days=days)
    made = AUTHORITY.issue_cert("tls.tls.svc", not_after=until_when)
    chain = b"".join(each.bytes() for each in made.cert_chain_pems).decode()
    data = {
        "tls.crt": chain,
        "tls.key": made.private_key_pem.bytes().decode(),
        "ca.crt": AUTHORITY.cert_pem.bytes().decode(),
    }
    put_secret(kubectl, namespace, "tls", data)


def put_secret(
    kubectl: Kubectl, namespace: str, name: str, data: dict[str, str], type_: str = "kubernetes.io/tls"
) -> None:
    metadata = {"name": name, "namespace": namespace}
    manifest = {"apiVersion": "v1", "kind": "Secret", "type": type_, "metadata": metadata, "stringData": data}
    kubectl("apply", "-f", "-", stdin=json.dumps(manifest))


def patch(kubectl: Kubectl, cluster: str, namespace: str, spec: dict[str, object]) -> None:
    change = json.dumps({"spec": spec})
    kubectl("patch", "psc", cluster, "--namespace", namespace, "--type=merge", "--patch", change)


def make_directory(kubectl: Kubectl, path: str) -> None:
    """Make a directory on a node, as its owner does."""
    container = {
        "name": "make",
        "image": IMAGE,
        "command": ["python3", "-c", ""],
        "volumeMounts": [{"name": "made", "mountPath": "/made"}],
    }
    volume = {"name": "made", "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    kubectl.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "make-directory"}, "spec": spec})
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/make-directory", "--timeout=120s")
    kubectl("delete", "pod", "make-directory", "--wait=false")


def in_cluster(manifest: dict[str, object], cluster: str) -> dict[str, object]:
    spec = manifest["spec"]
    assert isinstance(spec, dict)
    return {**manifest, "spec": {**spec, "clusterRef": {"name": cluster}}}


def in_pod(kubectl: Kubectl, namespace: str, cluster: str, what: str) -> str:
    uri = f"penstock://admin:{kubectl.password(f'{cluster}-default-user', namespace)}@127.0.0.1:5680/"
    command = [
        "exec",
        f"{cluster}-0",
        "--namespace",
        namespace,
        "--",
        "env",
        f"URI={uri}",
        "python3",
        "-c",
        PUBLISH,
        what,
    ]
    return kubectl(*command).strip()
