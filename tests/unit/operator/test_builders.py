"""The pure builders: golden files of a Cluster's objects, and properties for every valid spec.

After an intended change, write them again: `PENSTOCK_WRITE_GOLDEN=1 pytest tests/unit/operator/test_builders.py`.
"""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from penstock.node.config import Settings
from penstock_operator.api import ClusterSpec
from penstock_operator.desired import Owner, Plan, children, plan
from penstock_operator.desired.access import administrator_secret
from penstock_operator.desired.cluster_plan import FIRST, NEWEST
from penstock_operator.desired.compare import differences
from penstock_operator.desired.configuration import config_hash, toml
from penstock_operator.desired.network import network_policy

GOLDEN = Path(__file__).parent / "golden"
SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "everything": {
        "storage": {"size": "20Gi", "storageClassName": "fast", "retain": {"whenDeleted": "Delete"}},
        "config": {
            "logLevel": "debug",
            "diskFreeBytesMin": 1024,
            "drainSeconds": 5,
            "jwtClockSkewSeconds": 2.5,
            "authBackends": "local,jwt",
            "jwtIssuer": "https://login.example",
            "jwtAudience": "penstock",
            "metricsToken": {"secretKeyRef": {"name": "scrape", "key": "token"}},
        },
        "service": {"type": "LoadBalancer", "annotations": {"a": "b"}, "loadBalancerClass": "example.com/fast"},
        "scheduling": {
            "nodeSelector": {"disk": "fast"},
            "tolerations": [{"key": "x", "operator": "Exists"}],
            "topologySpreadConstraints": [
                {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
            ],
        },
        "extraVolumes": [
            {"name": "archive", "mountPath": "/archive", "source": {"persistentVolumeClaim": {"claimName": "archive"}}}
        ],
        "override": {
            "pod": {"spec": {"dnsPolicy": "Default"}},
            "statefulSet": {"spec": {"minReadySeconds": 5}},
            "service": {"spec": {"externalTrafficPolicy": "Local"}},
        },
        "imagePullSecrets": [{"name": "registry"}],
        "pdb": {"enabled": True},
        "networkPolicy": {"enabled": True, "allowedClients": [{"namespaceSelector": {}}]},
        "monitoring": {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}},
        "podLabels": {"team": "shop"},
        "tls": {
            "secretName": "mq-tls",
            "certManager": {"issuerRef": {"name": "ca"}, "dnsNames": ["mq.example.com"]},
            "versionMin": "1.3",
            "clientCertificates": {"authoritySecretName": "clients", "operatorSecretName": "op", "user": "cn"},
        },
    },
    "volatile": {"storage": {"mode": "emptyDir", "size": "1Gi"}, "replicas": 0},
}
some_specs = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.sampled_from([0, 1]),
        "storage": st.fixed_dictionaries(
            {}, optional={"size": st.sampled_from(["1Gi", "0.5Ti"]), "mode": st.sampled_from(["pvc", "emptyDir"])}
        ),
        "config": st.fixed_dictionaries(
            {}, optional={"logLevel": st.sampled_from(["info", "debug"]), "ioThreads": st.integers(0, 256)}
        ),
        "pdb": st.fixed_dictionaries({"enabled": st.booleans()}),
        "networkPolicy": st.fixed_dictionaries({"enabled": st.booleans()}),
        "podLabels": st.dictionaries(st.sampled_from(["team", "penstock.dev/cluster"]), st.text("abc", min_size=1)),
        "terminationGracePeriodSeconds": st.integers(10, 86_400),
    },
)


def built(spec: dict[str, Any], revision: int = NEWEST) -> list[dict[str, Any]]:
    made = owner(spec)
    return children(made, plan(made, revision))


def planned(spec: dict[str, Any]) -> tuple[Owner, Plan]:
    made = owner(spec)
    return made, plan(made)


def owner(spec: dict[str, Any]) -> Owner:
    return Owner("mq", "shop", "uid-1", ClusterSpec.model_validate({"image": "penstock:test", **spec}))


@pytest.mark.parametrize("revision", range(FIRST, NEWEST + 1))
@pytest.mark.parametrize("name", SPECS)
def test_the_children_of_a_cluster_are_those_of_the_golden_file(name: str, revision: int) -> None:
    """Pods of earlier revisions never change: an operator's upgrade would restart every broker."""
    text = yaml.safe_dump_all(built(SPECS[name], revision), sort_keys=False)
    path = GOLDEN / (f"{name}.yaml" if revision == NEWEST else f"{name}-{revision}.yaml")

    if os.environ.get("PENSTOCK_WRITE_GOLDEN"):
        path.write_text(text)

    assert path.read_text() == text


@given(some_specs)
def test_every_pod_is_restricted(spec: dict[str, Any]) -> None:
    template = built(spec)[-1]["spec"]["template"]["spec"]
    (container,) = template["containers"]

    assert template["securityContext"]["runAsNonRoot"] is True
    assert template["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert template["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(template)


@given(some_specs)
def test_every_child_belongs_to_its_cluster_and_nothing_differs_from_itself(spec: dict[str, Any]) -> None:
    for child in built(spec):
        (reference,) = child["metadata"]["ownerReferences"]
        assert (reference["uid"], reference["controller"]) == ("uid-1", True)
        assert child["metadata"]["labels"]["penstock.dev/cluster"] == "mq"
        assert differences(child, child) == []


@given(some_specs)
def test_the_selector_finds_the_pod_whatever_labels_a_person_adds(spec: dict[str, Any]) -> None:
    workload = built(spec)[-1]["spec"]

    labels = workload["template"]["metadata"]["labels"]
    assert {key: labels.get(key) for key in workload["selector"]["matchLabels"]} == workload["selector"]["matchLabels"]


@given(some_specs)
def test_the_broker_knows_every_setting_that_it_is_given(spec: dict[str, Any]) -> None:
    keys = {line.split(" = ")[0] for line in toml(*planned(spec)).splitlines()}

    assert keys <= set(Settings.model_fields)


def test_only_what_needs_a_restart_changes_the_pod() -> None:
    plain, hot = planned({}), planned({"service": {"type": "NodePort"}, "pdb": {"enabled": True}})
    read_again = planned({"config": {"logLevel": "debug", "drainSeconds": 5}})
    cold = planned({"config": {"segmentIdleSeconds": 60}})

    assert children(*plain)[-1]["spec"]["template"] == children(*hot)[-1]["spec"]["template"]
    assert children(*plain)[-1]["spec"]["template"] == children(*read_again)[-1]["spec"]["template"]
    assert toml(*plain) != toml(*read_again)
    assert config_hash(*plain) != config_hash(*cold)


def test_the_secret_follows_the_service_binding_convention_and_outlives_the_cluster() -> None:
    secret = administrator_secret(owner({}), "p/ss word")

    assert secret["type"] == "servicebinding.io/penstock"
    assert set(secret["data"]) == {"type", "provider", "host", "port", "username", "password", "uri", "grpc-address"}
    assert "ownerReferences" not in secret["metadata"]


def test_a_network_policy_admits_the_operator_from_its_own_namespace_only() -> None:
    spec = ClusterSpec.model_validate({"image": "penstock:test", "networkPolicy": {"enabled": True}})
    policy = network_policy(Owner("mq", "shop", "uid-1", spec, "penstock-system"))

    assert policy is not None
    *_, operator = policy["spec"]["ingress"][0]["from"]
    assert operator["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "penstock-system"}}
    assert operator["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "penstock-operator"}}
