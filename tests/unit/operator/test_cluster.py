"""Clusters: children, Secret, pod, and the conditions of failures."""

import base64
import copy
import stat
from pathlib import Path

import pytest

from penstock import Connection
from penstock.client.uri import Address, Tls
from penstock_operator.engine import Key
from penstock_operator.links import Brokers
from penstock_operator.links.certificates import UntrustedError
from support.admin_fake import FakeBroker
from support.operator_world import OperatorWorld


@pytest.fixture
def world() -> OperatorWorld:
    made = OperatorWorld()
    made.start_cluster()
    return made


def test_a_cluster_gets_its_children_and_serves(world: OperatorWorld) -> None:
    kinds = {kind for kind, _, _ in world.kubernetes.objects}

    assert kinds >= {"StatefulSet", "Service", "ConfigMap", "Secret", "ServiceAccount"}
    assert world.condition("Cluster", "mq") == ("True", "Serving")
    cluster = world.kubernetes.get("Cluster", "mq")
    assert cluster is not None
    assert cluster["status"]["currentVersion"] == "9.9"
    assert cluster["status"]["binding"] == {"name": "mq-default-user"}


def test_a_cluster_that_is_as_it_should_be_is_not_written_again(world: OperatorWorld) -> None:
    world.kubernetes.writes.clear()

    world.look_again()

    assert world.kubernetes.writes == []


def test_a_child_that_was_changed_is_put_right_and_told_of(world: OperatorWorld) -> None:
    world.kubernetes.objects["ConfigMap", "default", "mq-config"]["data"] = {"penstock.toml": "other"}

    world.look_again()

    assert "data_dir" in world.kubernetes.objects["ConfigMap", "default", "mq-config"]["data"]["penstock.toml"]
    assert ("Cluster", "mq", "DriftRepaired") in world.kubernetes.events


def test_the_secret_is_never_made_anew_while_it_is_there(world: OperatorWorld) -> None:
    before = copy.deepcopy(world.kubernetes.get("Secret", "mq-default-user"))
    world.world.password = lambda: "another"

    world.look_again()

    assert world.kubernetes.get("Secret", "mq-default-user") == before


def test_a_secret_that_does_not_open_the_broker_is_named(world: OperatorWorld) -> None:
    assert world.broker is not None
    world.broker.passwords["admin"] = "another"
    world.world.brokers.forget("mq.default.svc")

    world.look_again()

    assert world.condition("Cluster", "mq") == ("False", "CredentialsRejected")


def test_a_pod_of_an_old_revision_is_replaced_once(world: OperatorWorld) -> None:
    workload = world.kubernetes.objects["StatefulSet", "default", "mq"]
    workload["status"]["updateRevision"] = "2"

    world.look_again()
    world.look_again()

    assert world.kubernetes.writes.count(("delete", "Pod", "mq-0")) == 1
    assert ("Cluster", "mq", "RollingPod") in world.kubernetes.events


def test_a_volume_that_was_replaced_stands_in_a_condition_until_somebody_saw_it(world: OperatorWorld) -> None:
    del world.kubernetes.objects["PersistentVolumeClaim", "default", "data-mq-0"]
    world.run_pod(uid="pod-2", claim="claim-2")
    world.settle()
    world.look_again()
    assert world.condition("Cluster", "mq", "DataLost") == ("True", "VolumeReplaced")
    assert ("Cluster", "mq", "VolumeReplaced") in world.kubernetes.events

    cluster = copy.deepcopy(world.kubernetes.objects["Cluster", "default", "mq"])
    cluster["metadata"]["annotations"] = {"penstock.dev/data-loss-seen": "claim-2"}
    world.kubernetes.add(cluster)
    world.settle()
    assert world.condition("Cluster", "mq", "DataLost") == ("", "")


def test_a_disk_that_was_wiped_under_the_same_claim_is_told_of_until_somebody_saw_it(world: OperatorWorld) -> None:
    wipe(world)
    world.look_again()
    world.look_again()
    assert world.condition("Cluster", "mq", "DataLost") == ("True", "DataReplaced")
    assert world.kubernetes.events.count(("Cluster", "mq", "DataReplaced")) == 1
    assert world.condition("Cluster", "mq") == ("True", "Serving")

    annotate(world, "data-2")
    assert world.condition("Cluster", "mq", "DataLost") == ("", "")


def test_a_loss_that_was_seen_does_not_hide_the_next_one(world: OperatorWorld) -> None:
    wipe(world)
    world.look_again()
    annotate(world, "data-2")

    wipe(world, "data-3")
    world.look_again()

    assert world.condition("Cluster", "mq", "DataLost") == ("True", "DataReplaced")


def test_a_broker_that_tells_no_id_of_its_data_has_lost_nothing(world: OperatorWorld) -> None:
    assert world.broker is not None
    world.broker.data_id = ""
    world.look_again()

    world.broker.data_id = "data-1"
    world.look_again()

    assert world.condition("Cluster", "mq", "DataLost") == ("", "")


def test_another_volume_is_one_loss_and_not_two(world: OperatorWorld) -> None:
    world.run_pod(uid="pod-2", claim="claim-2")
    wipe(world)
    world.look_again()
    annotate(world, "claim-2")

    world.look_again()

    assert world.condition("Cluster", "mq", "DataLost") == ("", "")


def test_what_was_lost_is_declared_again_at_once(world: OperatorWorld) -> None:
    world.apply("Queue", "jobs", {"vhost": "/", "name": "jobs"})
    world.settle()

    wipe(world)
    world.add(Key("Cluster", "default", "mq"))
    world.settle()

    assert world.broker is not None
    assert "jobs" in world.broker.vhosts["/"]["queues"]


def test_a_loss_policy_of_manual_declares_nothing_until_somebody_saw_the_loss(world: OperatorWorld) -> None:
    world.kubernetes.change("Cluster", "mq", {"storage": {"lossPolicy": "Manual"}})
    world.apply("Queue", "jobs", {"vhost": "/", "name": "jobs"})
    world.settle()
    assert world.condition("Queue", "jobs") == ("True", "Synced")

    wipe(world)
    world.add(Key("Cluster", "default", "mq"))
    world.settle()
    assert world.broker is not None
    assert world.condition("Cluster", "mq") == ("False", "DataLost")
    assert world.condition("Queue", "jobs") == ("False", "DataLost")
    assert "jobs" not in world.broker.vhosts["/"]["queues"]

    annotate(world, "data-2")
    assert world.condition("Cluster", "mq") == ("True", "Serving")
    assert world.condition("Queue", "jobs") == ("True", "Synced")
    assert "jobs" in world.broker.vhosts["/"]["queues"]


def wipe(world: OperatorWorld, data_id: str = "data-2") -> None:
    """Simulate a broker with an empty directory on the same volume."""
    world.broker = FakeBroker.new("generated")
    world.broker.data_id = data_id
    world.world.brokers.forget("mq.default.svc")


def annotate(world: OperatorWorld, seen: str) -> None:
    cluster = copy.deepcopy(world.kubernetes.objects["Cluster", "default", "mq"])
    cluster["metadata"]["annotations"] = {"penstock.dev/data-loss-seen": seen}
    world.kubernetes.add(cluster)
    world.settle()


def test_an_image_that_cannot_be_pulled_is_named(world: OperatorWorld) -> None:
    pod = world.kubernetes.objects["Pod", "default", "mq-0"]
    pod["spec"] = {"containers": [{"image": "nowhere/penstock:1"}]}
    pod["status"] = {
        "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such"}}}]
    }

    world.look_again()

    assert world.condition("Cluster", "mq") == ("False", "ImagePullFailed")
    found = world.kubernetes.get("Cluster", "mq")
    assert found is not None
    assert "nowhere/penstock:1" in found["status"]["conditions"][0]["message"]


def test_the_image_of_a_sidecar_that_cannot_be_pulled_is_named_and_not_the_broker_s(world: OperatorWorld) -> None:
    pod = world.kubernetes.objects["Pod", "default", "mq-0"]
    pod["spec"] = {"containers": [{"name": "broker", "image": "penstock:1"}, {"name": "logs", "image": "logs:1"}]}
    pod["status"] = {"containerStatuses": [{"name": "logs", "state": {"waiting": {"reason": "ErrImagePull"}}}]}

    world.look_again()

    found = world.kubernetes.objects["Cluster", "default", "mq"]["status"]["conditions"][0]
    assert found["reason"] == "ImagePullFailed"
    assert "'logs:1'" in found["message"]


def test_a_service_of_somebody_else_is_not_taken() -> None:
    world = OperatorWorld()
    world.kubernetes.add({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "mq"}, "spec": {}})

    world.apply("Cluster", "mq", {"image": "penstock:test"})
    world.settle()

    assert world.condition("Cluster", "mq") == ("False", "ApplyRefused")
    assert world.kubernetes.objects["Service", "default", "mq"]["spec"] == {}


def test_a_cluster_whose_name_is_that_of_another_s_service_asks_no_broker(world: OperatorWorld) -> None:
    # Cluster 'mq' has the Service 'mq-nodes': the password of Cluster 'mq-nodes' went to the broker of 'mq', which
    # refused it, and the reason was CredentialsRejected.
    def connect(address: Address) -> Connection:
        raise AssertionError(f"asked {address.host}")

    service = copy.deepcopy(world.kubernetes.objects["Service", "default", "mq-nodes"])
    world.world.brokers = Brokers(world.clock, connect)
    world.apply("Cluster", "mq-nodes", {"image": "penstock:test"})
    ready = [{"type": "Ready", "status": "True"}]
    world.kubernetes.add({"kind": "Pod", "metadata": {"name": "mq-nodes-0"}, "status": {"conditions": ready}})

    again = world.reconcile(Key("Cluster", "default", "mq-nodes"))

    assert world.condition("Cluster", "mq-nodes") == ("False", "ApplyRefused")
    assert world.condition("Cluster", "mq-nodes", "Applied") == ("False", "ApplyRefused")
    assert world.kubernetes.objects["Service", "default", "mq-nodes"] == service
    assert again == 10


def test_a_cluster_that_is_paused_is_left_alone_until_it_is_not(world: OperatorWorld) -> None:
    world.kubernetes.change("Cluster", "mq", {"paused": True})
    world.settle()
    world.kubernetes.objects["ConfigMap", "default", "mq-config"]["data"] = {}
    world.look_again()
    assert world.condition("Cluster", "mq", "Paused") == ("True", "Paused")
    assert world.kubernetes.objects["ConfigMap", "default", "mq-config"]["data"] == {}

    world.kubernetes.change("Cluster", "mq", {"paused": False})
    world.settle()
    assert world.condition("Cluster", "mq", "Paused") == ("", "")
    assert world.kubernetes.objects["ConfigMap", "default", "mq-config"]["data"] != {}


def test_a_cluster_that_is_paused_while_its_workload_is_made_anew_says_that_nothing_starts_its_pod(
    world: OperatorWorld,
) -> None:
    # Growing the volume deletes the StatefulSet. Paused at this moment, a broker that died stayed away without a word.
    def message() -> str:
        conditions = world.kubernetes.objects["Cluster", "default", "mq"]["status"]["conditions"]
        return next(str(each["message"]) for each in conditions if each["type"] == "Paused")

    storage = {"metadata": {"name": "standard", "namespace": ""}, "kind": "StorageClass", "allowVolumeExpansion": True}
    world.kubernetes.objects["StorageClass", "", "standard"] = storage
    world.kubernetes.objects["PersistentVolumeClaim", "default", "data-mq-0"]["spec"]["storageClassName"] = "standard"
    world.kubernetes.kinds_lingering.add("StatefulSet")
    world.kubernetes.change("Cluster", "mq", {"storage": {"size": "20Gi"}})
    world.reconcile(Key("Cluster", "default", "mq"))
    world.kubernetes.change("Cluster", "mq", {"paused": True})
    world.reconcile(Key("Cluster", "default", "mq"))
    assert message().startswith("there is no StatefulSet, so that nothing starts the pod again; ")

    world.kubernetes.finish("StatefulSet", "mq")
    world.kubernetes.change("Cluster", "mq", {"paused": False})
    world.settle()
    assert world.kubernetes.get("StatefulSet", "mq") is not None

    world.kubernetes.change("Cluster", "mq", {"paused": True})
    world.reconcile(Key("Cluster", "default", "mq"))
    assert message() == "set spec.paused to false to go on"


@pytest.mark.parametrize(("when_deleted", "is_kept"), [("Retain", True), ("Delete", False)])
def test_the_secret_stays_as_long_as_the_volume_does(when_deleted: str, is_kept: bool) -> None:
    world = OperatorWorld()
    world.start_cluster(storage={"retain": {"whenDeleted": when_deleted}})

    world.kubernetes.remove("Cluster", "mq")
    world.settle()

    assert world.kubernetes.get("Cluster", "mq") is None
    assert world.kubernetes.get("StatefulSet", "mq") is None
    assert (world.kubernetes.get("Secret", "mq-default-user") is not None) is is_kept
    assert (world.kubernetes.get("PersistentVolumeClaim", "data-mq-0") is not None) is is_kept


def test_what_is_no_longer_wanted_is_deleted(world: OperatorWorld) -> None:
    world.kubernetes.change("Cluster", "mq", {"pdb": {"enabled": True}})
    world.settle()
    assert world.kubernetes.get("PodDisruptionBudget", "mq") is not None

    world.kubernetes.change("Cluster", "mq", {"pdb": {"enabled": False}})
    world.settle()
    assert world.kubernetes.get("PodDisruptionBudget", "mq") is None


def test_a_volume_grows_by_its_claim_and_the_workload_is_made_anew_around_its_pod(world: OperatorWorld) -> None:
    storage_class = {
        "kind": "StorageClass",
        "metadata": {"name": "fast", "namespace": ""},
        "allowVolumeExpansion": True,
    }
    world.kubernetes.objects["StorageClass", "", "fast"] = storage_class
    world.kubernetes.objects["PersistentVolumeClaim", "default", "data-mq-0"]["spec"]["storageClassName"] = "fast"

    world.kubernetes.change("Cluster", "mq", {"storage": {"size": "20Gi"}})
    world.settle()

    claim = world.kubernetes.objects["PersistentVolumeClaim", "default", "data-mq-0"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "20Gi"
    template = world.kubernetes.objects["StatefulSet", "default", "mq"]["spec"]["volumeClaimTemplates"][0]
    assert template["spec"]["resources"]["requests"]["storage"] == "20Gi"
    assert ("delete", "StatefulSet", "mq") in world.kubernetes.writes
    assert ("delete", "Pod", "mq-0") not in world.kubernetes.writes


def test_a_volume_that_cannot_grow_says_so_and_the_broker_serves_on(world: OperatorWorld) -> None:
    world.kubernetes.change("Cluster", "mq", {"storage": {"size": "20Gi"}})
    world.settle()

    assert world.condition("Cluster", "mq", "StorageHealthy") == ("False", "ExpansionUnsupported")
    assert world.condition("Cluster", "mq") == ("True", "Serving")


def secret(name: str, **data: str) -> dict[str, object]:
    """Return a Secret; values are base64 already."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}


def test_a_certificate_that_is_not_there_is_named(world: OperatorWorld) -> None:
    world.kubernetes.change("Cluster", "mq", {"tls": {"secretName": "mq-tls"}})
    world.settle()
    assert world.condition("Cluster", "mq") == ("False", "CertificateNotFound")

    world.kubernetes.add(secret("mq-tls", **{"tls.crt": "Yw=="}))
    world.look_again()
    assert world.condition("Cluster", "mq") == ("False", "CertificateIncomplete")


def test_with_a_certificate_the_secrets_say_so_and_keep_their_password(world: OperatorWorld) -> None:
    world.apply("User", "web", {"name": "web"})
    world.settle()
    before = world.kubernetes.objects["Secret", "default", "web-user-credentials"]["data"]["password"]

    world.kubernetes.add(secret("mq-tls", **{"tls.crt": "Yw==", "tls.key": "aw==", "ca.crt": "Y2E="}))
    world.kubernetes.change("Cluster", "mq", {"tls": {"secretName": "mq-tls"}})
    world.settle()
    world.look_again()

    for name in ("mq-default-user", "web-user-credentials"):
        data = world.kubernetes.objects["Secret", "default", name]["data"]
        assert base64.b64decode(data["uri"]).startswith(b"penstocks://")
        assert data["ca.crt"] == "Y2E="
    assert world.kubernetes.objects["Secret", "default", "web-user-credentials"]["data"]["password"] == before


def test_the_certificate_that_is_served_stands_in_a_condition(world: OperatorWorld) -> None:
    world.kubernetes.add(secret("mq-tls", **{"tls.crt": "Yw==", "tls.key": "aw==", "ca.crt": "Y2E="}))
    world.kubernetes.change("Cluster", "mq", {"tls": {"secretName": "mq-tls"}})
    world.settle()
    assert world.condition("Cluster", "mq", "TLSValid") == ("True", "Valid")

    def refuse(host: str, port: int, tls: Tls) -> str:
        raise UntrustedError("certificate has expired")

    world.world.good_until = refuse
    world.look_again()
    assert world.condition("Cluster", "mq", "TLSValid") == ("False", "Untrusted")


def test_where_clients_show_certificates_the_operator_shows_its_own(world: OperatorWorld) -> None:
    world.kubernetes.add(secret("mq-tls", **{"tls.crt": "Yw==", "tls.key": "aw==", "ca.crt": "Y2E="}))
    world.kubernetes.add(secret("clients", **{"ca.crt": "Y2E="}))
    clients = {"authoritySecretName": "clients", "operatorSecretName": "operator-tls"}
    world.kubernetes.change("Cluster", "mq", {"tls": {"secretName": "mq-tls", "clientCertificates": clients}})
    world.settle()
    world.look_again()
    assert world.condition("Cluster", "mq") == ("False", "CertificateNotFound")

    world.kubernetes.add(secret("operator-tls", **{"tls.crt": "bXk=", "tls.key": "bXlr"}))
    shown: list[Tls] = []
    world.world.good_until = lambda host, port, tls: shown.append(tls) or "Jan  1 00:00:00 2030 GMT"  # type: ignore[func-returns-value]
    world.look_again()

    assert world.condition("Cluster", "mq") == ("True", "Serving")
    tls = shown[-1]
    assert (Path(tls.cert or "").read_text(), Path(tls.key or "").read_text()) == ("my", "myk")
    assert stat.S_IMODE(Path(tls.key or "").stat().st_mode) == 0o600
    settings = world.kubernetes.objects["ConfigMap", "default", "mq-config"]["data"]["penstock.toml"]
    assert 'tls_client_auth = "required"' in settings
    volumes = world.kubernetes.objects["StatefulSet", "default", "mq"]["spec"]["template"]["spec"]["volumes"]
    (mounted,) = [each["secret"] for each in volumes if each["name"] == "clients"]
    assert mounted == {"secretName": "clients", "items": [{"key": "ca.crt", "path": "ca.crt"}]}


def test_an_issuer_is_asked_for_a_certificate_and_its_absence_told(world: OperatorWorld) -> None:
    tls = {"secretName": "mq-tls", "certManager": {"issuerRef": {"name": "ca"}}}
    world.kubernetes.kinds_missing.add("Certificate")
    world.kubernetes.change("Cluster", "mq", {"tls": tls})
    world.settle()
    assert world.condition("Cluster", "mq", "NoWarnings") == ("False", "KindsMissing")

    world.kubernetes.kinds_missing.clear()
    world.look_again()
    spec = world.kubernetes.objects["Certificate", "default", "mq"]["spec"]
    assert spec["secretName"] == "mq-tls"
    assert "mq.default.svc" in spec["dnsNames"]
    assert "*.mq-nodes.default.svc" in spec["dnsNames"]


def test_a_kind_that_an_older_chart_gives_no_right_to_does_not_matter_unless_it_is_wanted() -> None:
    world = OperatorWorld()
    world.kubernetes.kinds_forbidden.add("Certificate")

    world.start_cluster()

    assert world.condition("Cluster", "mq") == ("True", "Serving")


def test_a_pause_does_not_claim_that_a_manifest_was_applied(world: OperatorWorld) -> None:
    before = copy.deepcopy(world.kubernetes.objects["Cluster", "default", "mq"]["status"])

    world.kubernetes.change("Cluster", "mq", {"paused": True, "podLabels": {"team": "shop"}})
    world.settle()

    status = world.kubernetes.objects["Cluster", "default", "mq"]["status"]
    assert status["observedGeneration"] == before["observedGeneration"] == 1
    by_type = {each["type"]: each for each in status["conditions"]}
    assert by_type["Ready"] == next(each for each in before["conditions"] if each["type"] == "Ready")
    assert by_type["Paused"]["observedGeneration"] == 2


def test_a_refused_growth_can_be_put_back_to_the_size_in_the_status(world: OperatorWorld) -> None:
    world.kubernetes.change("Cluster", "mq", {"storage": {"size": "20Gi"}})
    world.settle()
    status = world.kubernetes.objects["Cluster", "default", "mq"]["status"]
    assert status["storageSize"] == "10Gi"

    world.kubernetes.change("Cluster", "mq", {"storage": {"size": status["storageSize"]}})
    world.settle()

    assert world.condition("Cluster", "mq", "StorageHealthy") == ("True", "Healthy")
    assert ("delete", "StatefulSet", "mq") not in world.kubernetes.writes
