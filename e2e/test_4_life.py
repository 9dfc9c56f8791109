"""Clusters that come and go: volumes kept and not, volumes lost, images that cannot be pulled, namespaces deleted."""

import json
import time
from datetime import UTC, datetime, timedelta

import trustme

from e2e.kubectl import Kubectl, until
from e2e.manifests import ours, queue, small_cluster

AUTHORITY = trustme.CA()
PUBLISH = """
import os, sys, penstock
with penstock.connect(os.environ["URI"], timeout=20) as broker:
    if sys.argv[1] == "publish":
        print(broker.publish_many([b"kept"] * 100, routing_key="kept"))
    else:
        print(broker.get_queue("kept").ready_count)
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


def test_a_namespace_that_is_deleted_does_not_hang(kubectl: Kubectl) -> None:
    user = ours("User", "web", {"name": "web"})
    gone = in_cluster(queue("gone", deletionPolicy="Delete"), "image")
    kubectl.apply(gone, in_cluster(user, "image"), namespace="image")
    kubectl.wait_ready("queues.penstock.dev/gone", "image")

    for namespace in ("image", "keep", "drop", "tls"):
        kubectl("delete", "namespace", namespace, "--wait=false")

    for namespace in ("image", "keep", "drop", "tls"):
        kubectl("wait", "--for=delete", f"namespace/{namespace}", "--timeout=120s")


def made_namespace(kubectl: Kubectl, name: str) -> str:
    """Where only restricted pods may run: ours must be."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    return name


def put_certificate(kubectl: Kubectl, namespace: str, days: int = 10) -> None:
    """Of one authority, made once, for the Service of the Cluster tls."""
    until_when = datetime.now(UTC) + timedelta(days=days)
    made = AUTHORITY.issue_cert("tls.tls.svc", not_after=until_when)
    chain = b"".join(each.bytes() for each in made.cert_chain_pems).decode()
    data = {
        "tls.crt": chain,
        "tls.key": made.private_key_pem.bytes().decode(),
        "ca.crt": AUTHORITY.cert_pem.bytes().decode(),
    }
    metadata = {"name": "tls", "namespace": namespace}
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": metadata,
        "stringData": data,
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(manifest))


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
