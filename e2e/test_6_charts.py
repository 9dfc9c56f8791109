"""The charts as a whole: every values file against the API server, and the way from the first charts that worked to
these."""

import subprocess
from pathlib import Path

from e2e.conftest import Load
from e2e.kubectl import Kubectl, until
from e2e.manifests import ours

ROOT = Path(__file__).resolve().parents[1]
PREVIOUS = ROOT / "e2e" / "previous"
OURS = ("bindings", "permissions", "exchanges", "queues", "users", "vhosts", "policies", "clusters")


def test_every_values_file_is_taken_by_the_api_server(kubectl: Kubectl) -> None:
    script = str(ROOT / "tools" / "lint_charts.sh")

    done = subprocess.run([script], env=kubectl.environment(), capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("taken by the API server") >= 7


def test_a_wrong_value_is_refused_by_its_name(kubectl: Kubectl) -> None:
    done = kubectl.attempt(["helm", "template", str(ROOT / "charts" / "penstock"), "--set", "storage.sise=1Gi"])

    assert done.returncode != 0
    assert "sise" in done.stderr


def test_charts_are_upgraded_under_load(kubectl: Kubectl, load: Load) -> None:
    for kind in OURS:
        kubectl("delete", f"{kind}.penstock.dev", "--all", "--timeout=120s")
    kubectl.helm("uninstall", "mq", "--wait")
    kubectl.helm("uninstall", "penstock-operator", "--wait")
    kubectl("delete", "crd", *(f"{kind}.penstock.dev" for kind in OURS))
    kubectl.helm("install", "penstock-operator", *packed("penstock-operator"), "--wait", "--timeout", "180s")
    kubectl.helm("install", "mq", *packed("penstock"))
    kubectl.wait_ready("psc/mq")
    load.start()

    for name, release in (("penstock-operator", "penstock-operator"), ("penstock", "mq")):
        kubectl.helm("upgrade", release, str(ROOT / "charts" / name), "--wait", "--timeout", "180s")
    kubectl("rollout", "status", "deployment", "penstock-operator", "--timeout=120s")
    kubectl.apply(ours("VHost", "new", {"name": "new"}))
    kubectl.wait_ready("vhosts.penstock.dev/new")
    until(lambda: kubectl.condition("psc", "mq")[:2] == ("True", "Serving"), "the Cluster is ready")

    assert load.verdict()["lost"] == 0


def packed(name: str) -> list[str]:
    """The chart of the first release that worked."""
    return [str(PREVIOUS / f"{name}-0.1.0.tgz")]
