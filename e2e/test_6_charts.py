"""The charts as a whole: every values file against the API server, a second installation, and an upgrade under load."""

import json
import subprocess
import time
from functools import partial
from pathlib import Path

from e2e.conftest import Load
from e2e.kubectl import Kubectl, until
from e2e.manifests import Manifest, ours, small_cluster

ROOT = Path(__file__).resolve().parents[1]
CHARTS = {name: str(ROOT / "charts" / name) for name in ("penstock-operator", "penstock")}
STUBS = (
    ("monitoring.coreos.com", "ServiceMonitor", "servicemonitors"),
    ("monitoring.coreos.com", "PrometheusRule", "prometheusrules"),
    ("cert-manager.io", "Certificate", "certificates"),
)
OURS = (
    "bindings",
    "permissions",
    "topicpermissions",
    "exchanges",
    "queues",
    "streams",
    "users",
    "vhosts",
    "policies",
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


def settings(kubectl: Kubectl) -> str:
    """Return the broker's configuration file."""
    found = kubectl.get("configmap", "mq-config")
    return "" if found is None else json.dumps(found["data"])
