"""Objects in a broker that the operator does not run: a bare pod, which a Secret leads to."""

import json
from collections.abc import Iterator

import pytest

from e2e.kubectl import Kubectl, until
from e2e.manifests import IMAGE, RESTRICTED, Manifest, ours
from e2e.test_4_life import made_namespace
from e2e.test_6_charts import CHARTS

HERE, PORT = "outside", 5680
PASSWORD, NEW_PASSWORD = "warehouse-1", "warehouse-2"
# The second one is of a connection that was open before.
REJECTED = {"CredentialsRejected", "NotAuthenticated"}
QUEUES, USERS = "queues.penstock.dev", "users.penstock.dev"


@pytest.fixture(scope="module", autouse=True)
def broker(kubectl: Kubectl) -> Iterator[None]:
    """Run a broker, and let the operator connect to it."""
    made_namespace(kubectl, HERE)
    allow(kubectl, is_allowed=True)
    kubectl.apply(pod(), service(), secret(PASSWORD), namespace=HERE)
    kubectl.wait_ready("pod/warehouse", HERE)
    yield
    allow(kubectl, is_allowed=False)
    kubectl("delete", "namespace", HERE, "--timeout=120s")


def test_a_queue_and_a_user_are_made_on_it(kubectl: Kubectl) -> None:
    kubectl.apply(there("Queue", "orders"), there("User", "web"), namespace=HERE)

    kubectl.wait_ready(f"{QUEUES}/orders", HERE)
    kubectl.wait_ready(f"{USERS}/web", HERE)
    assert '"orders"' in penstock(kubectl, "queue", "list")
    assert '"web"' in penstock(kubectl, "user", "list")
    uri = f"penstock://web:{kubectl.password('web-user-credentials', HERE)}@127.0.0.1:{PORT}/"
    penstock(kubectl, "permission", "set", "web", "--read", ".*")
    assert '"orders"' in penstock(kubectl, "queue", "list", uri=uri)


def test_a_changed_secret_is_followed_at_once(kubectl: Kubectl) -> None:
    penstock(kubectl, "user", "set-password", "robot", "--password", NEW_PASSWORD)
    kubectl.apply(there("Queue", "late"), namespace=HERE)
    until(lambda: kubectl.condition(QUEUES, "late", namespace=HERE)[1] in REJECTED, "it is refused")

    kubectl.apply(secret(NEW_PASSWORD), namespace=HERE)

    kubectl.wait_ready(f"{QUEUES}/late", HERE, seconds=30)


def test_the_operator_s_own_account_stays(kubectl: Kubectl) -> None:
    kubectl.apply(there("User", "robot"), namespace=HERE)

    until(lambda: kubectl.condition(USERS, "robot", namespace=HERE)[1] == "ReservedName", "it is refused")
    kubectl("delete", f"{USERS}/robot", "--namespace", HERE, "--timeout=60s")
    assert '"robot"' in penstock(kubectl, "user", "list", password=NEW_PASSWORD)


def test_a_deletion_reaches_it_and_one_without_the_secret_ends(kubectl: Kubectl) -> None:
    kubectl("delete", f"{QUEUES}/late", "--namespace", HERE, "--timeout=60s")
    assert '"late"' not in penstock(kubectl, "queue", "list", password=NEW_PASSWORD)
    kubectl("delete", "secret", "warehouse", "--namespace", HERE)

    kubectl("delete", f"{USERS}/web", f"{QUEUES}/orders", "--namespace", HERE, "--timeout=60s")

    assert '"web"' not in penstock(kubectl, "user", "list", password=NEW_PASSWORD)


def allow(kubectl: Kubectl, *, is_allowed: bool) -> None:
    value = f"allowConnectionSecrets={json.dumps(is_allowed)}"
    chart = CHARTS["penstock-operator"]
    kubectl.helm("upgrade", "penstock-operator", chart, "--reuse-values", "--set", value, "--wait")
    kubectl("rollout", "status", "deployment", "penstock-operator", "--timeout=120s")


def penstock(kubectl: Kubectl, *arguments: str, password: str = PASSWORD, uri: str = "") -> str:
    """Run `penstock` in the pod, by default as the operator's account."""
    uri = uri or f"penstock://robot:{password}@127.0.0.1:{PORT}/"
    listing = ("--output", "json") if "list" in arguments else ()
    command = ("python3", "/packages/bin/penstock", *arguments, *listing, "--uri", uri)
    return kubectl("exec", "warehouse", "--namespace", HERE, "--", *command)


def there(kind: str, name: str) -> Manifest:
    made = ours(kind, name, {"name": name, "deletionPolicy": "Delete"})
    made["metadata"]["namespace"] = HERE
    del made["spec"]["clusterRef"]
    made["spec"]["connectionSecretRef"] = {"name": "warehouse"}
    return made


def secret(password: str) -> Manifest:
    uri = f"penstock://warehouse.{HERE}.svc:{PORT}"
    values = {"uri": uri, "username": "robot", "password": password}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "warehouse"}, "stringData": values}


def pod() -> Manifest:
    container = {
        "name": "broker",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "env": [
            {"name": "PENSTOCK_DEFAULT_USER", "value": "robot"},
            {"name": "PENSTOCK_DEFAULT_PASSWORD", "value": PASSWORD},
        ],
        "readinessProbe": {"httpGet": {"path": "/health/ready", "port": 15692}, "periodSeconds": 1},
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "tmp", "mountPath": "/tmp"}],
    }
    volumes: list[Manifest] = [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "warehouse", "labels": {"app": "warehouse"}},
        "spec": {"securityContext": {"fsGroup": 10_001}, "containers": [container], "volumes": volumes},
    }


def service() -> Manifest:
    spec = {"selector": {"app": "warehouse"}, "ports": [{"name": "grpc", "port": PORT}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "warehouse"}, "spec": spec}
