"""A broker of an earlier commit below today's operator: `make long-e2e` builds its images and keeps its charts."""

import json
import os
import time
from pathlib import Path

import pytest

from e2e.cluster import Provider
from e2e.conftest import Load
from e2e.kubectl import Kubectl, until
from e2e.manifests import SMALL

ROOT = Path(__file__).resolve().parents[1]
FOLDER = os.environ.get("E2E_PREVIOUS_FOLDER", "")
PREVIOUS, TODAY = "penstock:previous", "penstock:0.1.0"
NEWER_DATA = "this version knows format 1"
QUIET_SECONDS = 20
OURS = ("bindings", "permissions", "exchanges", "queues", "users", "vhosts", "policies", "clusters")

pytestmark = pytest.mark.skipif(not FOLDER, reason="it needs images of an earlier commit: make long-e2e")


def test_an_operator_that_is_upgraded_leaves_an_older_broker_as_it_is(
    machine: Provider, kubectl: Kubectl, load: Load
) -> None:
    for name in ("penstock", "penstock-operator"):
        machine.load(Path(FOLDER) / f"{name}.tar")
    start_afresh(kubectl)
    kubectl.helm("install", "penstock-operator", str(Path(FOLDER) / "charts/penstock-operator"), *tagged())
    kubectl("rollout", "status", "deployment", "penstock-operator", "--timeout=120s")
    kubectl.helm("install", "mq", str(Path(FOLDER) / "charts/penstock"), *tagged())
    kubectl.wait_ready("psc/mq")
    load.start()
    pod, settings = pod_uid(kubectl), configuration(kubectl)

    # Without new values Helm keeps those of before, and so the earlier image.
    kubectl.helm(
        *("upgrade", "penstock-operator", str(ROOT / "charts/penstock-operator"), "--reset-values"),
        *("--wait", "--timeout", "180s"),
    )
    kubectl("rollout", "status", "deployment", "penstock-operator", "--timeout=120s")
    kubectl("annotate", "psc", "mq", "look=again", "--overwrite")
    until(lambda: kubectl.condition("psc", "mq", "Applied")[0] == "True", "today's operator looked at it")
    time.sleep(QUIET_SECONDS)  # a restart would begin within this time

    assert (pod_uid(kubectl), configuration(kubectl)) == (pod, settings)
    assert kubectl.condition("psc", "mq")[:2] == ("True", "Serving")


def test_an_older_broker_that_restarts_for_another_reason_gets_no_setting_that_it_does_not_know(
    kubectl: Kubectl,
) -> None:
    before = pod_uid(kubectl)

    patch(kubectl, {"resources": {**SMALL, "requests": {"cpu": "60m", "memory": "128Mi"}}})

    serves_anew(kubectl, before)
    assert "default_password_file" not in configuration(kubectl)


def test_a_newer_image_gets_the_newer_form_of_the_settings(kubectl: Kubectl) -> None:
    before = pod_uid(kubectl)

    patch(kubectl, {"image": TODAY})

    serves_anew(kubectl, before)
    until(lambda: kubectl.condition("psc", "mq", "PasswordSynced")[0] == "True", "it follows the Secret")
    assert "default_password_file" in configuration(kubectl)


def test_an_older_image_refuses_newer_data_with_its_own_settings_and_loses_nothing(
    kubectl: Kubectl, load: Load
) -> None:
    before = pod_uid(kubectl)

    patch(kubectl, {"image": PREVIOUS})

    until(lambda: pod_uid(kubectl) not in {"", before}, "another pod", 90)
    until(lambda: NEWER_DATA in broker_log(kubectl), "it says why it does not start", 90)
    until(lambda: kubectl.condition("psc", "mq")[0] == "False", "the Cluster is not ready", 60)
    assert "default_password_file" not in configuration(kubectl)

    refusing = pod_uid(kubectl)
    patch(kubectl, {"image": TODAY})

    serves_anew(kubectl, refusing)
    assert load.verdict()["lost"] == 0


def start_afresh(kubectl: Kubectl) -> None:
    """Delete what earlier scenarios left, and the kinds, as a Kubernetes without Penstock."""
    for kind in OURS:
        kubectl.attempt(["kubectl", "delete", f"{kind}.penstock.dev", "--all", "--timeout=120s"])
    for release in ("mq", "penstock-operator"):
        kubectl.attempt(["helm", "uninstall", release, "--wait"])
    kubectl("delete", "pvc", "--all", "--timeout=60s")
    kubectl("delete", "secret", "mq-default-user", "--ignore-not-found")
    names = kubectl("get", "crd", "--output", "name").split()
    ours = [name for name in names if name.endswith(".penstock.dev")]
    if ours:
        kubectl("delete", *ours, "--timeout=60s")


def tagged() -> list[str]:
    return ["--set", "image.tag=previous"]


def patch(kubectl: Kubectl, spec: dict[str, object]) -> None:
    kubectl("patch", "psc", "mq", "--type=merge", "--patch", json.dumps({"spec": spec}))


def pod_uid(kubectl: Kubectl) -> str:
    return kubectl("get", "pod", "mq-0", "--output", "jsonpath={.metadata.uid}")


def configuration(kubectl: Kubectl) -> str:
    return kubectl("get", "configmap", "mq-config", "--output", "jsonpath={.data}")


def broker_log(kubectl: Kubectl) -> str:
    """Return the log of the broker's container, also where it ended."""
    logs = [kubectl.attempt(["kubectl", "logs", "mq-0", *which]) for which in ((), ("--previous",))]
    return "".join(log.stdout for log in logs)


def serves_anew(kubectl: Kubectl, before: str) -> None:
    until(lambda: pod_uid(kubectl) not in {"", before}, "another pod", 90)
    kubectl.wait_ready("pod/mq-0", seconds=90)
    until(lambda: kubectl.condition("psc", "mq")[:2] == ("True", "Serving"), "the Cluster is ready", 60)
