"""Children of a Cluster: whose they are, what others may add to them, and what a refusal stops."""

from typing import Any

import pytest

from penstock_operator.engine import Key
from support.kubernetes_fake import Manifest
from support.operator_world import OperatorWorld

CLUSTER = Key("Cluster", "default", "mq")
SELECTOR = {"app.kubernetes.io/name": "penstock", "app.kubernetes.io/instance": "mq"}


@pytest.fixture
def world() -> OperatorWorld:
    made = OperatorWorld()
    made.start_cluster(networkPolicy={"enabled": True}, pdb={"enabled": True})
    return made


def spec(world: OperatorWorld, kind: str, name: str = "mq") -> Manifest:
    found: Manifest = world.kubernetes.objects[kind, "default", name]["spec"]
    return found


# ------------------------------------------------------------ additions


@pytest.mark.parametrize("name", ["mq", "mq-nodes"])
def test_a_key_added_to_the_selector_of_a_service_is_removed(world: OperatorWorld, name: str) -> None:
    world.kubernetes.edit("Service", name, {"spec": {"selector": {"tier": "gold"}}})

    world.look_again()

    assert spec(world, "Service", name)["selector"] == SELECTOR
    assert ("Cluster", "mq", "DriftRepaired") in world.kubernetes.events


def test_a_port_added_to_a_service_is_removed_and_what_kubernetes_filled_in_stays(world: OperatorWorld) -> None:
    service = spec(world, "Service")
    for port in service["ports"]:
        port["nodePort"] = 30_000 + port["port"] % 1_000
    service["ports"].append({"name": "more", "port": 1, "protocol": "TCP"})
    service["clusterIP"] = "10.0.0.1"

    world.look_again()

    assert [each["name"] for each in spec(world, "Service")["ports"]] == ["grpc", "amqp", "metrics"]
    assert spec(world, "Service")["clusterIP"] == "10.0.0.1"
    world.kubernetes.writes.clear()
    world.look_again()
    assert world.kubernetes.writes == []


@pytest.mark.parametrize(
    "addition",
    [
        {"podSelector": {"matchLabels": {"tier": "gold"}}},
        {"podSelector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}},
        {"policyTypes": ["Ingress", "Egress"]},
        {"ingress": [{}]},
        {"egress": [{}]},
    ],
)
def test_what_is_added_to_a_network_policy_is_removed(world: OperatorWorld, addition: Manifest) -> None:
    before = spec(world, "NetworkPolicy")

    world.kubernetes.edit("NetworkPolicy", "mq", {"spec": addition})
    world.look_again()

    assert spec(world, "NetworkPolicy") == before


def test_a_peer_narrowed_in_a_network_policy_is_put_back(world: OperatorWorld) -> None:
    peers = spec(world, "NetworkPolicy")["ingress"][0]["from"]
    peers[0]["podSelector"]["matchLabels"] = {"tier": "gold"}
    peers[1]["podSelector"]["matchLabels"]["tier"] = "gold"

    world.look_again()

    assert "gold" not in str(spec(world, "NetworkPolicy"))


def test_a_disruption_budget_that_selects_other_pods_selects_its_own_again(world: OperatorWorld) -> None:
    world.kubernetes.edit("PodDisruptionBudget", "mq", {"spec": {"selector": {"matchLabels": {"tier": "gold"}}}})

    world.look_again()

    assert spec(world, "PodDisruptionBudget")["selector"]["matchLabels"] == SELECTOR


def test_a_file_added_to_the_configuration_is_removed(world: OperatorWorld) -> None:
    world.kubernetes.edit("ConfigMap", "mq-config", {"data": {"more.toml": "x"}})

    world.look_again()

    assert set(world.kubernetes.objects["ConfigMap", "default", "mq-config"]["data"]) == {"penstock.toml"}


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("Service", {"metadata": {"labels": {"team": "shop"}, "annotations": {"mesh": "on"}}}),
        ("Service", {"spec": {"sessionAffinity": "ClientIP"}}),
        ("StatefulSet", {"spec": {"template": {"metadata": {"annotations": {"restartedAt": "now"}}}}}),
    ],
)
def test_additions_that_select_nothing_are_left_to_those_who_made_them(
    world: OperatorWorld, kind: str, change: Manifest
) -> None:
    world.kubernetes.edit(kind, "mq", change)
    world.kubernetes.writes.clear()

    world.look_again()

    assert world.kubernetes.writes == []


# ------------------------------------------------------------ ownership


def test_a_label_that_was_removed_from_a_child_is_put_back(world: OperatorWorld) -> None:
    world.kubernetes.edit("Service", "mq", {"metadata": {"labels": None}})

    world.look_again()

    found = world.kubernetes.objects["Service", "default", "mq"]["metadata"]
    assert found["labels"]["penstock.dev/cluster"] == "mq"
    assert world.condition("Cluster", "mq") == ("True", "Serving")


def test_an_object_of_another_owner_is_not_taken_whatever_its_labels_say() -> None:
    world = OperatorWorld()
    theirs = {"kind": "Deployment", "name": "web", "uid": "uid-web", "controller": True}
    metadata: Manifest = {"name": "mq", "labels": {"penstock.dev/cluster": "mq"}, "ownerReferences": [theirs]}
    world.kubernetes.add({"kind": "Deployment", "metadata": {"name": "web", "uid": "uid-web"}})
    world.kubernetes.add({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {}})

    world.start_cluster()

    assert spec(world, "Service") == {}
    assert world.condition("Cluster", "mq", "Applied") == ("False", "ApplyRefused")


def test_a_child_without_an_owner_is_taken_when_its_label_says_so() -> None:
    world = OperatorWorld()
    metadata: Manifest = {"name": "mq", "labels": {"penstock.dev/cluster": "mq"}}
    world.kubernetes.add({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {}})

    world.start_cluster()

    assert spec(world, "Service")["selector"] == SELECTOR
    assert world.condition("Cluster", "mq", "Applied") == ("True", "Applied")


def test_an_optional_child_of_another_owner_is_not_deleted() -> None:
    world = OperatorWorld()
    metadata: Manifest = {"name": "mq", "labels": {"penstock.dev/cluster": "mq"}}
    metadata["ownerReferences"] = [{"kind": "Deployment", "name": "web", "uid": "uid-web", "controller": True}]
    world.kubernetes.add({"kind": "Deployment", "metadata": {"name": "web", "uid": "uid-web"}})
    world.kubernetes.add({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": {}})

    world.start_cluster()

    assert world.kubernetes.get("PodDisruptionBudget", "mq") is not None


# ------------------------------------------------------------ refusals


def test_a_refused_child_is_reported_and_stops_neither_the_others_nor_the_objects_in_the_broker(
    world: OperatorWorld,
) -> None:
    world.kubernetes.edit("Service", "mq", {"spec": {"selector": {"tier": "gold"}}})
    world.kubernetes.kinds_refused.add("Service")
    world.kubernetes.change("Cluster", "mq", {"podLabels": {"team": "shop"}})
    world.apply("Queue", "jobs", {"vhost": "/", "name": "jobs"})
    world.settle()

    assert world.condition("Cluster", "mq", "Applied") == ("False", "ApplyRefused")
    assert ("Cluster", "mq", "ApplyRefused") in world.kubernetes.events
    assert world.condition("Cluster", "mq") == ("True", "Serving")
    assert world.condition("Queue", "jobs") == ("True", "Synced")
    assert spec(world, "StatefulSet")["template"]["metadata"]["labels"]["team"] == "shop"


@pytest.mark.parametrize(("kind", "name"), [("ServiceAccount", "mq"), ("ConfigMap", "mq-config")])
def test_no_pod_runs_with_the_service_account_or_the_settings_of_another_owner(kind: str, name: str) -> None:
    """Cloud providers give the rights of a service account to each pod that names it, also without its token."""
    world = OperatorWorld()
    world.kubernetes.add({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})
    world.apply("Cluster", "mq", {"image": "penstock:test"})
    world.settle()

    assert world.kubernetes.get("StatefulSet", "mq") is None
    assert world.condition("Cluster", "mq") == ("False", "ApplyRefused")
    assert world.kubernetes.get("Service", "mq") is not None


def test_a_refused_workload_is_the_reason_why_a_cluster_is_not_ready() -> None:
    world = OperatorWorld()
    world.kubernetes.kinds_refused.add("StatefulSet")

    world.apply("Cluster", "mq", {"image": "penstock:test"})
    world.settle()

    assert world.condition("Cluster", "mq") == ("False", "ApplyRefused")


def test_a_certificate_that_goes_away_is_reported_while_the_broker_serves_on() -> None:
    world = OperatorWorld()
    data = {"tls.crt": "Yw==", "tls.key": "aw==", "ca.crt": "Y2E="}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mq-tls"}, "data": data}
    world.kubernetes.add(secret)
    world.start_cluster(tls={"secretName": "mq-tls"})

    world.kubernetes.remove("Secret", "mq-tls")
    world.apply("Queue", "jobs", {"vhost": "/", "name": "jobs"})
    world.look_again()

    assert world.condition("Cluster", "mq") == ("True", "Serving")
    assert world.condition("Cluster", "mq", "TLSValid") == ("False", "CertificateNotFound")
    assert world.condition("Queue", "jobs") == ("True", "Synced")


def test_a_pod_is_not_replaced_by_one_whose_certificate_is_missing(world: OperatorWorld) -> None:
    world.kubernetes.change("Cluster", "mq", {"tls": {"secretName": "mq-tls"}})
    world.settle()
    world.kubernetes.edit("StatefulSet", "mq", {"status": {"updateRevision": "2"}})
    world.look_again()

    assert ("delete", "Pod", "mq-0") not in world.kubernetes.writes
    assert world.condition("Cluster", "mq") == ("False", "CertificateNotFound")


# ------------------------------------------------------------ what clients reach


def endpoints(**more: Any) -> Manifest:
    found: Manifest = {"targetRef": {"kind": "Pod", "name": "mq-0"}, "conditions": {"ready": True}}
    labels = {"kubernetes.io/service-name": "mq"}
    metadata = {"name": "mq-abcde", "labels": labels}
    return {"kind": "EndpointSlice", "metadata": metadata, "endpoints": [found | more]}


def test_a_cluster_whose_service_leads_nowhere_is_not_ready(world: OperatorWorld) -> None:
    world.kubernetes.edit("EndpointSlice", "mq-abcde", {"endpoints": []})
    world.look_again()
    assert world.condition("Cluster", "mq") == ("False", "NoEndpoint")

    world.kubernetes.edit("EndpointSlice", "mq-abcde", endpoints())
    world.look_again()
    assert world.condition("Cluster", "mq") == ("True", "Serving")


def test_an_endpoint_that_is_not_ready_does_not_count(world: OperatorWorld) -> None:
    world.kubernetes.edit("EndpointSlice", "mq-abcde", endpoints(conditions={"ready": False}))

    world.look_again()

    assert world.condition("Cluster", "mq") == ("False", "NoEndpoint")


def test_an_operator_that_may_not_read_endpoints_takes_the_brokers_answer(world: OperatorWorld) -> None:
    world.kubernetes.kinds_forbidden.add("EndpointSlice")

    world.look_again()

    assert world.condition("Cluster", "mq") == ("True", "Serving")


def test_a_broker_that_takes_no_new_client_is_not_ready_whatever_connections_there_are(world: OperatorWorld) -> None:
    assert world.broker is not None
    world.broker.takes_clients = False

    world.look_again()

    assert world.condition("Cluster", "mq") == ("False", "BrokerUnreachable")


def test_the_operators_own_certificate_that_goes_away_is_reported_while_it_remembers_it() -> None:
    world = OperatorWorld()
    data = {"tls.crt": "Yw==", "tls.key": "aw==", "ca.crt": "Y2E="}
    for name in ("mq-tls", "clients", "operator-tls"):
        world.kubernetes.add({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data})
    clients = {"authoritySecretName": "clients", "operatorSecretName": "operator-tls"}
    world.start_cluster(tls={"secretName": "mq-tls", "clientCertificates": clients})

    world.kubernetes.remove("Secret", "operator-tls")
    world.apply("Queue", "jobs", {"vhost": "/", "name": "jobs"})
    world.look_again()

    assert world.condition("Cluster", "mq", "TLSValid") == ("False", "CertificateNotFound")
    assert world.condition("Cluster", "mq") == ("True", "Serving")
    assert world.condition("Queue", "jobs") == ("True", "Synced")

    world.world.shown.clear()
    world.look_again()
    assert world.condition("Cluster", "mq") == ("False", "CertificateNotFound")


@pytest.mark.parametrize("has_pod", [False, True])
def test_what_a_new_pod_waits_for_is_named(has_pod: bool) -> None:
    """The kubelet says only in events that a Secret to mount is missing."""
    world = OperatorWorld()
    world.apply("Cluster", "mq", {"image": "penstock:test", "tls": {"secretName": "mq-tls"}})
    world.settle()
    if has_pod:
        world.run_pod()
        world.kubernetes.objects["Pod", "default", "mq-0"]["status"] = {"phase": "Pending"}
    world.look_again()

    assert world.condition("Cluster", "mq") == ("False", "CertificateNotFound")
    assert world.condition("Cluster", "mq", "TLSValid") == ("False", "CertificateNotFound")


def test_a_secret_without_a_password_is_named_where_a_pod_waits_for_it(world: OperatorWorld) -> None:
    world.kubernetes.edit("Secret", "mq-default-user", {"data": {"password": None}})
    world.kubernetes.objects["Pod", "default", "mq-0"]["status"] = {"phase": "Pending"}

    world.look_again()

    assert world.condition("Cluster", "mq") == ("False", "SecretIncomplete")
