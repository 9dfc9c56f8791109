"""Pods that go, an operator that dies, an absent API server.

Messages flow meanwhile: the history is checked last.
"""

import json
import time

import pytest

from e2e.cluster import Harness, Provider
from e2e.conftest import Load
from e2e.kubectl import Kubectl, until
from e2e.manifests import queue

OPERATOR = "app.kubernetes.io/name=penstock-operator"
EVICTION = '{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"mq-0","namespace":"default"}}'
AWAY_SECONDS = 60


def test_a_broker_that_is_deleted_under_load_comes_back(kubectl: Kubectl) -> None:
    before = pod_uid(kubectl)

    kubectl("delete", "pod", "mq-0", "--wait=false")

    wait_for_another_pod(kubectl, before)


def test_a_broker_that_is_killed_under_load_comes_back(kubectl: Kubectl) -> None:
    before = pod_uid(kubectl)

    kubectl("delete", "pod", "mq-0", "--grace-period=0", "--force", "--wait=false")

    wait_for_another_pod(kubectl, before)


def test_a_broker_that_is_evicted_comes_back(kubectl: Kubectl) -> None:
    before = pod_uid(kubectl)

    kubectl("create", "--raw", "/api/v1/namespaces/default/pods/mq-0/eviction", "-f", "-", stdin=EVICTION)

    wait_for_another_pod(kubectl, before)


def test_a_node_that_is_drained_gets_its_broker_back(kubectl: Kubectl) -> None:
    before = pod_uid(kubectl)
    node = kubectl("get", "pod", "mq-0", "--output", "jsonpath={.spec.nodeName}")

    kubectl("cordon", node)
    kubectl("create", "--raw", "/api/v1/namespaces/default/pods/mq-0/eviction", "-f", "-", stdin=EVICTION)
    until(lambda: kubectl.condition("psc", "mq")[1] == "Unschedulable", "the Cluster says that no node takes it")
    kubectl("uncordon", node)

    wait_for_another_pod(kubectl, before)


def test_a_changed_setting_restarts_the_broker_once(kubectl: Kubectl) -> None:
    before = pod_uid(kubectl)

    kubectl("patch", "psc", "mq", "--type=merge", "--patch", '{"spec":{"config":{"segmentIdleSeconds":60}}}')

    wait_for_another_pod(kubectl, before)
    again = pod_uid(kubectl)
    assert "segment_idle_seconds = 60" in kubectl("get", "configmap", "mq-config", "--output", "jsonpath={.data}")
    kubectl("annotate", "psc", "mq", "look=again", "--overwrite")
    rolls = [event for event in kubectl.list("events") if event["reason"] == "RollingPod"]
    assert (len(rolls), pod_uid(kubectl)) == (1, again)


def test_a_changed_level_of_the_log_counts_without_a_restart(kubectl: Kubectl) -> None:
    before = pod_uid(kubectl)

    kubectl("patch", "psc", "mq", "--type=merge", "--patch", '{"spec":{"config":{"logLevel":"debug"}}}')

    # The kubelet updates a changed file in the pod at its own pace.
    until(lambda: "settings reloaded" in kubectl("logs", "mq-0"), "the broker took it", 180)
    assert pod_uid(kubectl) == before


def test_an_operator_that_is_killed_in_the_middle_goes_on(kubectl: Kubectl) -> None:
    names = [f"middle-{number}" for number in range(150)]

    kubectl.apply(*(queue(name, deletionPolicy="Delete") for name in names))
    kubectl("delete", "pod", "--selector", OPERATOR, "--grace-period=0", "--force", "--wait=false")

    until(lambda: ready_count(kubectl, "middle-") == len(names), "all are ready", 120)
    kubectl("delete", "queues.penstock.dev", *names, "--wait=false")
    until(lambda: not [each for each in queues(kubectl) if each.startswith("middle-")], "all are gone", 120)


def test_two_operators_at_once_do_no_harm(kubectl: Kubectl) -> None:
    names = [f"two-{number}" for number in range(50)]
    kubectl("scale", "deployment", "penstock-operator", "--replicas=2")
    kubectl("rollout", "status", "deployment", "penstock-operator", "--timeout=120s")
    before = pod_uid(kubectl)

    kubectl.apply(*(queue(name, deletionPolicy="Delete") for name in names))
    until(lambda: ready_count(kubectl, "two-") == len(names), "all are ready", 120)
    kubectl("delete", "queues.penstock.dev", *names, "--wait=false")
    until(lambda: not [each for each in queues(kubectl) if each.startswith("two-")], "all are gone", 120)

    assert pod_uid(kubectl) == before
    kubectl("scale", "deployment", "penstock-operator", "--replicas=1")
    kubectl("rollout", "status", "deployment", "penstock-operator", "--timeout=120s")


def test_messages_flow_while_the_api_server_is_away(machine: Provider, kubectl: Kubectl) -> None:
    if not isinstance(machine, Harness):
        pytest.skip("only the harness can take the API server away")
    kubectl("wait", "--for=condition=Ready", "pod/load", "--timeout=60s")

    machine.pause_api()
    try:
        time.sleep(AWAY_SECONDS)  # the failure itself takes this long
    finally:
        machine.resume_api()

    until(lambda: kubectl("get", "--raw", "/readyz") == "ok", "the API server is back")
    kubectl.apply(queue("after-the-gap"))
    kubectl.wait_ready("queues.penstock.dev/after-the-gap", seconds=120)
    log = kubectl("logs", "--selector", OPERATOR, "--tail=-1")
    assert "a bug" not in log
    assert "Traceback" not in log
    assert log.count("the API server does not answer") <= 3


def test_nothing_that_was_confirmed_is_lost(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    found = load.verdict()

    with capsys.disabled():
        print(f"\nhistory: {json.dumps(found)}")
    assert found["confirmed"] > 1_000
    # The client reconnects by itself, so an absence is either an error or only a long wait.
    away = found["failures"] + found["interruptions"]
    assert away > 0, "the broker was never away: the scenarios before did nothing"
    assert found["lost"] == 0


def pod_uid(kubectl: Kubectl) -> str:
    return kubectl("get", "pod", "mq-0", "--output", "jsonpath={.metadata.uid}")


def wait_for_another_pod(kubectl: Kubectl, before: str) -> None:
    """Wait for another pod, and for the Cluster to report ready."""
    until(lambda: pod_uid(kubectl) not in {"", before}, "another pod", 90)
    kubectl.wait_ready("pod/mq-0", seconds=90)
    until(lambda: kubectl.condition("psc", "mq")[:2] == ("True", "Serving"), "the Cluster is ready", 60)


def ready_count(kubectl: Kubectl, prefix: str, resource: str = "queues.penstock.dev") -> int:
    return sum(
        1
        for each in kubectl.list(resource)
        if each["metadata"]["name"].startswith(prefix)
        and any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in each.get("status", {}).get("conditions", [])
        )
    )


def queues(kubectl: Kubectl) -> list[str]:
    return [each["metadata"]["name"] for each in kubectl.list("queues.penstock.dev")]
