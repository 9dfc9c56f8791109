"""The charts as a whole: every values file against the API server, a second installation, and an upgrade under load.

Also two operators for one namespace, and an operator that moves.
"""

import json
import re
import subprocess
import time
from functools import partial
from pathlib import Path

import yaml

from e2e.conftest import Load
from e2e.kubectl import Kubectl, until
from e2e.manifests import Manifest, ours, queue, small_cluster
from e2e.test_2_manifests import broker
from e2e.test_5_speed import READ

ROOT = Path(__file__).resolve().parents[1]
CHARTS = {name: str(ROOT / "charts" / name) for name in ("penstock-operator", "penstock")}
OPERATOR = CHARTS["penstock-operator"]
WATCHES = ("--set", "watchNamespaces={default}", "--wait", "--timeout", "180s")
SECOND, SYSTEM = "second", "penstock-system"
STUBS = (
    ("monitoring.coreos.com", "ServiceMonitor", "servicemonitors"),
    ("monitoring.coreos.com", "PrometheusRule", "prometheusrules"),
    ("cert-manager.io", "Certificate", "certificates"),
)
OURS = (
    "shards",
    "bindings",
    "permissions",
    "topicpermissions",
    "exchanges",
    "queues",
    "streams",
    "users",
    "vhosts",
    "policies",
    "backups",
    "scheduledbackups",
    "clusters",
)


def test_every_values_file_is_taken_by_the_api_server(kubectl: Kubectl) -> None:
    script = str(ROOT / "tools" / "lint_charts.sh")

    done = subprocess.run([script], env=kubectl.environment(), capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("taken by the API server") >= 7


def test_a_wrong_value_is_refused_by_its_name(kubectl: Kubectl) -> None:
    done = kubectl.attempt(["helm", "template", str(ROOT / "charts" / "penstock"), "--set", "storage.sise=1Gi"])

    assert done.returncode != 0
    assert "sise" in done.stderr


def test_the_dashboards_of_two_releases_are_told_apart(kubectl: Kubectl) -> None:
    found = [dashboard(kubectl, *place) for place in (("mq", "shop"), ("mq", "depot"), ("other", "shop"))]

    names = [(file, content["uid"], content["title"]) for file, content in found]
    assert [len(set(column)) for column in zip(*names, strict=True)] == [3, 3, 3]
    assert dashboard(kubectl, "mq", "shop") == found[0], "an upgrade keeps its address"
    assert all(len(uid) <= 40 for _, uid, _ in names)  # Grafana takes no longer one


def dashboard(kubectl: Kubectl, release: str, namespace: str) -> tuple[str, Manifest]:
    """Return the file of a release's dashboard with its content."""
    place = ["template", release, CHARTS["penstock"], "--namespace", namespace]
    text = kubectl.helm(*place, "--show-only", "templates/dashboards.yaml")
    ((file, content),) = yaml.safe_load(text)["data"].items()
    return file, json.loads(content)


def test_what_other_operators_need_is_made_where_their_kinds_are(kubectl: Kubectl) -> None:
    """Use stubs: cert-manager and the Prometheus operator are absent, but the API server checks names."""
    wanted = {"tls": {"secretName": "others-tls", "certManager": {"issuerRef": {"name": "ca"}}}}
    enabled = {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}
    kubectl.apply(small_cluster("others", monitoring=enabled, **wanted))
    until(lambda: kubectl.condition("psc", "others", "NoWarnings")[1] == "KindsMissing", "it says what is missing")

    kubectl.apply(*(stub(*each) for each in STUBS))
    for group, kind, plural in STUBS:
        kubectl("wait", "--for=condition=Established", f"crd/{plural}.{group}", "--timeout=30s")
        until(partial(is_made, kubectl, kind), f"a {kind}", 60)

    until(lambda: kubectl.condition("psc", "others", "NoWarnings")[0] == "True", "nothing is missing")
    kubectl("delete", "psc", "others", "--timeout=60s")
    kubectl("delete", "crd", *(f"{plural}.{group}" for group, _, plural in STUBS))


def is_made(kubectl: Kubectl, kind: str) -> bool:
    """Return whether it is made: the operator reconciles at once when the object changes, not after minutes."""
    kubectl("annotate", "psc", "others", f"look={time.monotonic()}", "--overwrite")
    return kubectl.get(kind.lower(), "others") is not None


def stub(group: str, kind: str, plural: str) -> Manifest:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [version],
        },
    }


def test_charts_are_installed_anew_and_upgraded_under_load(kubectl: Kubectl, load: Load) -> None:
    """Start as a Kubernetes without Penstock does. Charts of an earlier commit are upgraded by `make long-e2e`."""
    for kind in OURS:
        kubectl("delete", f"{kind}.penstock.dev", "--all", "--timeout=120s")
    kubectl.helm("uninstall", "mq", "--wait")
    kubectl.helm("uninstall", "penstock-operator", "--wait")
    kubectl("delete", "crd", *(f"{kind}.penstock.dev" for kind in OURS))
    kubectl.helm("install", "penstock-operator", CHARTS["penstock-operator"], "--wait", "--timeout", "180s")
    kubectl.helm("install", "mq", CHARTS["penstock"])
    kubectl.wait_ready("psc/mq")
    load.start()

    kubectl.helm("upgrade", "penstock-operator", CHARTS["penstock-operator"], "--set", "workers=4", "--wait")
    kubectl.helm("upgrade", "mq", CHARTS["penstock"], "--set", "config.drainSeconds=1", "--wait", "--timeout", "180s")
    kubectl("rollout", "status", "deployment", "penstock-operator", "--timeout=120s")
    kubectl.apply(ours("VHost", "new", {"name": "new"}))
    kubectl.wait_ready("vhosts.penstock.dev/new")
    until(lambda: kubectl.condition("psc", "mq")[:2] == ("True", "Serving"), "the Cluster is ready")
    until(lambda: "drain_seconds = 1" in settings(kubectl), "the changed value is in the broker's settings")

    assert load.verdict()["lost"] == 0


def test_of_two_releases_for_one_namespace_the_later_does_nothing_and_says_so(kubectl: Kubectl) -> None:
    kubectl.helm("install", SECOND, OPERATOR, "--namespace", SECOND, "--create-namespace", *WATCHES)
    pod = (f"deployment/{SECOND}-operator", "--namespace", SECOND)
    until(lambda: "came first" in kubectl("logs", *pod), "the later says so")
    assert "penstock_operator_acting 0.0" in kubectl("exec", *pod, "--", "python3", "-c", READ)
    assert "belong to another release" in kubectl.helm("get", "notes", SECOND, "--namespace", SECOND)
    kubectl.apply(ours("VHost", "by-first", {"name": "by-first"}))
    kubectl.wait_ready("vhosts.penstock.dev/by-first")

    kubectl.helm("uninstall", "penstock-operator", "--wait")
    kubectl.apply(ours("VHost", "by-second", {"name": "by-second"}))
    kubectl.wait_ready("vhosts.penstock.dev/by-second")

    kubectl.helm("uninstall", SECOND, "--namespace", SECOND, "--wait")
    kubectl.helm("install", "penstock-operator", OPERATOR, *WATCHES)
    kubectl("delete", "namespace", SECOND, "--wait=false")


def test_an_operator_moves_to_another_namespace_and_nothing_is_lost(kubectl: Kubectl, load: Load) -> None:
    load.start()
    kubectl.apply(queue("moved"))
    kubectl.wait_ready("queues.penstock.dev/moved")
    before = uids(kubectl)

    kubectl.helm("uninstall", "penstock-operator", "--wait")
    assert uids(kubectl) == before
    broker(kubectl, "queue", "delete", "moved")
    kubectl.helm("install", "penstock-operator", OPERATOR, "--namespace", SYSTEM, "--create-namespace", *WATCHES)

    until(lambda: '"moved"' in broker(kubectl, "queue", "list", "--output", "json"), "the moved operator repairs", 120)
    assert uids(kubectl) == before
    assert owners(kubectl) == {"default"}
    take_over_kinds(kubectl, SYSTEM)

    kubectl.helm("uninstall", "penstock-operator", "--namespace", SYSTEM, "--wait")
    kubectl.helm("install", "penstock-operator", OPERATOR, *WATCHES)
    take_over_kinds(kubectl, "default")
    kubectl("delete", "namespace", SYSTEM, "--wait=false")
    assert uids(kubectl) == before
    assert load.verdict()["lost"] == 0


def uids(kubectl: Kubectl) -> dict[tuple[str, str], str]:
    """Return the identity of each object of penstock.dev: one that was deleted and made anew has another."""
    return {
        (kind, each["metadata"]["name"]): each["metadata"]["uid"]
        for kind in kinds(kubectl)
        for each in kubectl.list(kind)
    }


def kinds(kubectl: Kubectl) -> list[str]:
    return kubectl("api-resources", "--api-group=penstock.dev", "--output", "name").split()


def owners(kubectl: Kubectl) -> set[str]:
    """Return the namespaces of the releases that own the kinds."""
    found = json.loads(kubectl("get", "crd", *kinds(kubectl), "--output", "json"))["items"]
    return {each["metadata"]["annotations"]["meta.helm.sh/release-namespace"] for each in found}


def take_over_kinds(kubectl: Kubectl, namespace: str) -> None:
    """Run the commands that the notes of the release show, and let it upgrade the kinds."""
    place = ("penstock-operator", "--namespace", namespace)
    commands = re.findall(r"^ +(kubectl (?:annotate|label) .+)$", kubectl.helm("get", "notes", *place), re.MULTILINE)
    assert len(commands) == 2

    for command in commands:
        kubectl.run(command.split())
    kubectl.helm("upgrade", "penstock-operator", OPERATOR, "--namespace", namespace, *WATCHES)

    assert owners(kubectl) == {namespace}
    assert "belong to another release" not in kubectl.helm("get", "notes", *place)


def settings(kubectl: Kubectl) -> str:
    """Return the broker's configuration file."""
    found = kubectl.get("configmap", "mq-config")
    return "" if found is None else json.dumps(found["data"])
