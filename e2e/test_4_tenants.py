"""Several namespaces on one broker: none takes the operator's account, or names and objects of another one.

Deletions reach the broker, also those that came while the operator was away.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.kubectl import Kubectl, until
from e2e.manifests import ours
from e2e.test_2_manifests import broker
from e2e.test_3_failures import OPERATOR
from e2e.test_4_life import made_namespace

ALLOWED, OTHER = "tenant", "stranger"
MANY = 200
USERS = "users.penstock.dev"


@pytest.fixture(scope="module", autouse=True)
def namespaces(kubectl: Kubectl) -> Iterator[None]:
    """Allow one other namespace."""
    made_namespace(kubectl, ALLOWED)
    made_namespace(kubectl, OTHER)
    allow(kubectl, {"from": "Selector", "matchLabels": {"kubernetes.io/metadata.name": ALLOWED}})
    yield
    allow(kubectl, {"from": "Same"})
    kubectl("delete", "namespace", ALLOWED, OTHER, "--timeout=120s")


def test_no_namespace_takes_the_account_of_the_operator(kubectl: Kubectl) -> None:
    for namespace in ("default", ALLOWED):
        manifest = json.dumps(of(user("admin-too", name="admin"), namespace))
        done = kubectl.attempt(["kubectl", "apply", "-f", "-"], stdin=manifest)
        assert done.returncode != 0
        assert "admin is the operator's own account" in done.stderr

    grant = ours("Permission", "grant", {"userRef": {"name": "boss"}, "read": ".*"})
    kubectl.apply(of(user("boss", name="boss", tags=["administrator"]), ALLOWED), of(grant, ALLOWED), namespace=ALLOWED)
    until(lambda: kubectl.condition(USERS, "boss", namespace=ALLOWED)[1] == "TagsNotAllowed", "it is refused")

    found = json.loads(broker(kubectl, "user", "list", "--output", "json"))
    assert "boss" not in json.dumps(found)
    assert "administrator" in json.dumps([each for each in found if each["name"] == "admin"])
    assert kubectl.condition("psc", "mq")[:2] == ("True", "Serving")
    kubectl("delete", "permissions.penstock.dev/grant", f"{USERS}/boss", "--namespace", ALLOWED, "--timeout=60s")


def test_a_namespace_that_is_not_allowed_takes_no_name(kubectl: Kubectl) -> None:
    kubectl.apply(of(user("squat", name="web-shop"), OTHER), namespace=OTHER)
    until(lambda: kubectl.condition(USERS, "squat", namespace=OTHER)[1] == "NamespaceNotAllowed", "it is refused")
    kubectl.apply(user("web-shop", name="web-shop"))
    kubectl.wait_ready(f"{USERS}/web-shop", seconds=60)

    kubectl("delete", f"{USERS}/web-shop", "--timeout=60s")

    assert "web-shop" not in broker(kubectl, "user", "list", "--output", "json")
    kubectl("delete", f"{USERS}/squat", "--namespace", OTHER, "--timeout=60s")


def test_an_exchange_that_met_a_different_one_leaves_it(kubectl: Kubectl) -> None:
    fanout = ours("Exchange", "met", {"name": "met", "type": "fanout", "deletionPolicy": "Retain"})
    kubectl.apply(fanout)
    kubectl.wait_ready("exchanges.penstock.dev/met", seconds=60)
    kubectl("delete", "exchanges.penstock.dev/met", "--timeout=60s")

    kubectl.apply(ours("Exchange", "met", {"name": "met", "type": "topic"}))
    until(lambda: kubectl.condition("exchanges.penstock.dev", "met")[1] == "Mismatch", "it differs")
    kubectl("delete", "exchanges.penstock.dev/met", "--timeout=60s")

    listed = json.loads(broker(kubectl, "exchange", "list", "--output", "json"))
    assert [each["type"] for each in listed if each["name"] == "met"] == ["fanout"]
    broker(kubectl, "exchange", "delete", "met")


def test_a_namespace_that_is_no_longer_allowed_can_be_deleted(kubectl: Kubectl) -> None:
    kubectl.apply(of(user("leaves", name="leaves"), ALLOWED), namespace=ALLOWED)
    kubectl.wait_ready(f"{USERS}/leaves", ALLOWED, seconds=60)
    allow(kubectl, {"from": "Same"})

    kubectl("delete", f"{USERS}/leaves", "--namespace", ALLOWED, "--timeout=60s")

    assert "leaves" not in broker(kubectl, "user", "list", "--output", "json")


def test_deletions_while_the_operator_is_away_reach_the_broker(kubectl: Kubectl) -> None:
    users = [user(f"away-{number}", name=f"away-{number}") for number in range(MANY)]
    kubectl.apply(*users)
    until(lambda: broker(kubectl, "user", "list", "--output", "json").count('"away-') == MANY, "all are made", 120)
    scale(kubectl, 0)

    kubectl("delete", USERS, *(each["metadata"]["name"] for each in users), "--wait=false")
    scale(kubectl, 1)

    def are_gone() -> bool:
        return not [each for each in kubectl.list(USERS) if each["metadata"]["name"].startswith("away-")]

    until(are_gone, "all are gone", 180)
    assert '"away-' not in broker(kubectl, "user", "list", "--output", "json")


def allow(kubectl: Kubectl, namespaces: dict[str, Any]) -> None:
    """Replace the namespaces, as `matchLabels` must not stay behind."""
    change = {"spec": {"topology": {"allowedNamespaces": {"matchLabels": None, **namespaces}}}}
    kubectl("patch", "psc", "mq", "--type=merge", "--patch", json.dumps(change))


def scale(kubectl: Kubectl, count: int) -> None:
    kubectl("scale", "deployment", "penstock-operator", f"--replicas={count}")
    if count:
        kubectl("rollout", "status", "deployment", "penstock-operator", "--timeout=120s")
    else:
        until(lambda: not kubectl("get", "pods", "--selector", OPERATOR, "--output", "name").strip(), "it is away")


def user(object_name: str, **spec: Any) -> dict[str, Any]:
    return ours("User", object_name, spec)


def of(manifest: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Return an object in another namespace for the Cluster in this one."""
    metadata = {**manifest["metadata"], "namespace": namespace}
    reference = {"name": "mq", "namespace": "default"}
    return {**manifest, "metadata": metadata, "spec": {**manifest["spec"], "clusterRef": reference}}
