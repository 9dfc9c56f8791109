"""Overrides: what is merged and how, and what is refused by its path."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock_operator.api import ClusterSpec
from penstock_operator.api.cluster import ExtraVolume
from penstock_operator.api.override import OWN_PATHS, OWN_VOLUMES, Override
from penstock_operator.desired import children, plan
from penstock_operator.desired.naming import Owner
from penstock_operator.desired.override import merge

Manifest = dict[str, Any]


def owner(**spec: Any) -> Owner:
    return Owner("mq", "shop", "uid", ClusterSpec.model_validate({"image": "penstock:test", **spec}))


def child(kind: str, name: str = "mq", **spec: Any) -> Manifest:
    made = owner(**spec)
    found = children(made, plan(made))
    return next(each for each in found if (each["kind"], each["metadata"]["name"]) == (kind, name))


def pod(**override: Any) -> Manifest:
    template: Manifest = child("StatefulSet", override={"pod": override})["spec"]["template"]
    return template


@pytest.mark.parametrize(
    ("base", "change", "wanted"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"args": ["x"]}, {"args": ["y"]}, {"args": ["y"]}),
        (
            {"env": [{"name": "a", "value": "1"}]},
            {"env": [{"name": "b"}]},
            {"env": [{"name": "a", "value": "1"}, {"name": "b"}]},
        ),
        (
            {"env": [{"name": "a", "value": "1"}]},
            {"env": [{"name": "a", "value": "2"}]},
            {"env": [{"name": "a", "value": "2"}]},
        ),
        (
            {"ports": [{"port": 1, "name": "x"}]},
            {"ports": [{"port": 1, "nodePort": 9}]},
            {"ports": [{"port": 1, "name": "x", "nodePort": 9}]},
        ),
        ({}, {"volumes": [{"name": "a"}]}, {"volumes": [{"name": "a"}]}),
    ],
)
def test_a_change_is_merged_as_kubernetes_does_it(base: Manifest, change: Manifest, wanted: Manifest) -> None:
    before = copy.deepcopy((base, change))

    assert merge(base, change) == wanted
    assert (base, change) == before


REFUSED: list[tuple[str, Manifest, str]] = [
    ("pod", {"spec": {"hostNetwork": True}}, "spec.override.pod.spec.hostNetwork"),
    ("pod", {"spec": {"hostPID": True}}, "spec.override.pod.spec.hostPID"),
    ("pod", {"spec": {"hostIPC": True}}, "spec.override.pod.spec.hostIPC"),
    ("pod", {"spec": {"hostUsers": True}}, "spec.override.pod.spec.hostUsers"),
    ("pod", {"spec": {"nodeName": "a"}}, "spec.override.pod.spec.nodeName"),
    ("pod", {"spec": {"serviceAccountName": "admin"}}, "spec.override.pod.spec.serviceAccountName"),
    ("pod", {"spec": {"serviceAccount": "admin"}}, "spec.override.pod.spec.serviceAccount"),
    ("pod", {"spec": {"automountServiceAccountToken": True}}, "spec.override.pod.spec.automountServiceAccountToken"),
    ("pod", {"spec": {"securityContext": {"runAsUser": 0}}}, "spec.override.pod.spec.securityContext.runAsUser"),
    ("pod", {"spec": {"securityContext": {"sysctls": []}}}, "spec.override.pod.spec.securityContext.sysctls"),
    (
        "pod",
        {"spec": {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}},
        "spec.override.pod.spec.volumes[a].hostPath",
    ),
    ("pod", {"spec": {"volumes": [{"name": "a", "nfs": {}}]}}, "spec.override.pod.spec.volumes[a].nfs"),
    (
        "pod",
        {"spec": {"volumes": [{"name": "a", "secret": {}, "hostPath": {}}]}},
        "spec.override.pod.spec.volumes[a].hostPath",
    ),
    ("pod", {"spec": {"volumes": [{"name": "data", "emptyDir": {}}]}}, "spec.override.pod.spec.volumes[data]"),
    (
        "pod",
        {"spec": {"volumes": [{"name": "a", "projected": {"sources": [{"serviceAccountToken": {}}]}}]}},
        "spec.override.pod.spec.volumes[a].projected",
    ),
    ("pod", {"spec": {"volumes": [{"emptyDir": {}}]}}, "spec.override.pod.spec.volumes[0]"),
    (
        "pod",
        {"spec": {"containers": [{"name": "broker", "image": "x"}]}},
        "spec.override.pod.spec.containers[broker].image",
    ),
    (
        "pod",
        {"spec": {"containers": [{"name": "broker", "command": []}]}},
        "spec.override.pod.spec.containers[broker].command",
    ),
    (
        "pod",
        {"spec": {"containers": [{"name": "broker", "args": []}]}},
        "spec.override.pod.spec.containers[broker].args",
    ),
    (
        "pod",
        {"spec": {"containers": [{"name": "broker", "lifecycle": {}}]}},
        "spec.override.pod.spec.containers[broker].lifecycle",
    ),
    (
        "pod",
        {"spec": {"containers": [{"name": "broker", "envFrom": []}]}},
        "spec.override.pod.spec.containers[broker].envFrom",
    ),
    (
        "pod",
        {"spec": {"containers": [{"name": "broker", "env": [{"name": "PENSTOCK_GRPC"}]}]}},
        "spec.override.pod.spec.containers[broker].env[PENSTOCK_GRPC]",
    ),
    (
        "pod",
        {"spec": {"containers": [{"name": "broker", "env": [{"name": "PYTHONPATH", "value": "/mine"}]}]}},
        "spec.override.pod.spec.containers[broker].env[PYTHONPATH]",
    ),
    (
        "pod",
        {"spec": {"containers": [{"name": "broker", "env": [{"name": "LD_AUDIT", "value": "/mine"}]}]}},
        "spec.override.pod.spec.containers[broker].env[LD_AUDIT]",
    ),
    (
        "pod",
        {"spec": {"containers": [{"name": "broker", "volumeMounts": [{"name": "v", "mountPath": "/etc//penstock"}]}]}},
        "spec.override.pod.spec.containers[broker].volumeMounts[/etc//penstock]",
    ),
    (
        "pod",
        {"spec": {"containers": [{"name": "broker", "volumeMounts": [{"name": "v", "mountPath": "/./data"}]}]}},
        "spec.override.pod.spec.containers[broker].volumeMounts[/./data]",
    ),
    (
        "pod",
        {"spec": {"containers": [{"name": "broker", "securityContext": {}}]}},
        "spec.override.pod.spec.containers[broker].securityContext",
    ),
    (
        "pod",
        {"spec": {"containers": [{"name": "broker", "volumeMounts": [{"name": "a", "mountPath": "/data/x"}]}]}},
        "spec.override.pod.spec.containers[broker].volumeMounts[/data/x]",
    ),
    (
        "pod",
        {"spec": {"containers": [{"name": "broker", "livenessProbe": {"exec": {}}}]}},
        "spec.override.pod.spec.containers[broker].livenessProbe.exec",
    ),
    (
        "pod",
        {"spec": {"containers": [{"name": "x", "securityContext": {"privileged": True}}]}},
        "spec.override.pod.spec.containers[x].securityContext.privileged",
    ),
    (
        "pod",
        {"spec": {"containers": [{"name": "x", "securityContext": {"runAsUser": 0}}]}},
        "spec.override.pod.spec.containers[x].securityContext.runAsUser",
    ),
    (
        "pod",
        {"spec": {"containers": [{"name": "x", "securityContext": {"runAsNonRoot": False}}]}},
        "spec.override.pod.spec.containers[x].securityContext.runAsNonRoot",
    ),
    (
        "pod",
        {"spec": {"containers": [{"name": "x", "securityContext": {"capabilities": {"add": ["ALL"]}}}]}},
        "spec.override.pod.spec.containers[x].securityContext.capabilities",
    ),
    (
        "pod",
        {"spec": {"initContainers": [{"name": "x", "securityContext": {"allowPrivilegeEscalation": True}}]}},
        "spec.override.pod.spec.initContainers[x].securityContext.allowPrivilegeEscalation",
    ),
    (
        "pod",
        {"spec": {"initContainers": [{"name": "x", "securityContext": {"procMount": "Unmasked"}}]}},
        "spec.override.pod.spec.initContainers[x].securityContext.procMount",
    ),
    (
        "pod",
        {"spec": {"containers": [{"name": "x", "ports": [{"hostPort": 1}]}]}},
        "spec.override.pod.spec.containers[x].ports.hostPort",
    ),
    ("pod", {"spec": {"ephemeralContainers": []}}, "spec.override.pod.spec.ephemeralContainers"),
    ("pod", {"spec": {"containers": "x"}}, "spec.override.pod.spec.containers"),
    ("pod", {"spec": {"volumes": [{"name": "a", "$patch": "delete"}]}}, "spec.override.pod.spec.volumes[a].$patch"),
    ("pod", {"$patch": "replace"}, "spec.override.pod.$patch"),
    (
        "pod",
        {"metadata": {"labels": {"penstock.dev/cluster": "b"}}},
        "spec.override.pod.metadata.labels[penstock.dev/cluster]",
    ),
    ("pod", {"metadata": {"ownerReferences": []}}, "spec.override.pod.metadata.ownerReferences"),
    ("statefulSet", {"spec": {"replicas": 3}}, "spec.override.statefulSet.spec.replicas"),
    ("statefulSet", {"spec": {"template": {}}}, "spec.override.statefulSet.spec.template"),
    (
        "statefulSet",
        {"spec": {"persistentVolumeClaimRetentionPolicy": {}}},
        "spec.override.statefulSet.spec.persistentVolumeClaimRetentionPolicy",
    ),
    ("service", {"spec": {"externalIPs": ["1.2.3.4"]}}, "spec.override.service.spec.externalIPs"),
    ("service", {"spec": {"selector": {}}}, "spec.override.service.spec.selector"),
    ("service", {"spec": {"externalName": "x"}}, "spec.override.service.spec.externalName"),
    (
        "service",
        {"spec": {"ports": [{"port": 5680, "targetPort": 1}]}},
        "spec.override.service.spec.ports[5680].targetPort",
    ),
    ("headlessService", {"spec": {"clusterIP": "1.2.3.4"}}, "spec.override.headlessService.spec.clusterIP"),
]


@pytest.mark.parametrize(("part", "change", "path"), REFUSED, ids=[path for _, _, path in REFUSED])
def test_what_must_not_be_overridden_is_refused_by_its_path(part: str, change: Manifest, path: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        owner(override={part: change})

    assert f"{path}" in str(refusal.value)
    assert "cannot be overridden; " in str(refusal.value)


some_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "spec", "containers", "name", "volumes", "projected", "sources", "securityContext"]
            )
            | st.sampled_from(
                ["capabilities", "seccompProfile", "env", "volumeMounts", "mountPath", "ports", "labels"]
            ),
            inside,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["pod", "service", "statefulSet"]), st.dictionaries(st.just("spec"), some_json)))
def test_any_override_is_merged_or_refused(change: Manifest) -> None:
    try:
        Override.model_validate(change)
    except ValidationError:
        return
    made = owner(override=change)
    assert children(made, plan(made))


def test_a_sidecar_is_added_as_a_restricted_container_and_the_broker_stays() -> None:
    plain = pod()["spec"]["containers"]

    broker, sidecar = pod(spec={"containers": [{"name": "logs", "image": "logs:1"}]})["spec"]["containers"]

    assert [broker] == plain
    assert sidecar["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_the_broker_s_container_takes_variables_mounts_and_limits_of_its_probes() -> None:
    change = {
        "name": "broker",
        "env": [{"name": "SSL_CERT_FILE", "value": "/trust/ca.crt"}],
        "volumeMounts": [{"name": "trust", "mountPath": "/trust"}],
        "livenessProbe": {"failureThreshold": 9},
    }
    trust = {"name": "trust", "configMap": {"name": "trust"}}

    found = pod(spec={"containers": [change], "volumes": [trust]}, metadata={"annotations": {"a": "b"}})

    (broker,) = found["spec"]["containers"]
    assert broker["env"][-1] == change["env"][0]  # type: ignore[index]
    assert broker["volumeMounts"][-1] == change["volumeMounts"][0]  # type: ignore[index]
    assert broker["livenessProbe"]["failureThreshold"] == 9
    assert broker["livenessProbe"]["httpGet"]["path"] == "/health/live"
    assert found["spec"]["volumes"][-1] == trust
    assert found["metadata"]["annotations"]["a"] == "b"


def test_services_are_overridden_one_by_one() -> None:
    change = {"spec": {"ports": [{"port": 5680, "nodePort": 30680}], "externalTrafficPolicy": "Local"}}

    client = child("Service", override={"service": change})
    nodes = child("Service", "mq-nodes", override={"service": change})

    assert client["spec"]["externalTrafficPolicy"] == "Local"
    assert [port.get("nodePort") for port in client["spec"]["ports"]] == [30680, None, None]
    assert client["spec"]["ports"][0]["name"] == "grpc"
    assert nodes == child("Service", "mq-nodes")


def test_an_extra_volume_is_mounted_and_others_stay() -> None:
    volume = {"name": "archive", "mountPath": "/archive", "readOnly": False, "source": {"emptyDir": {}}}

    spec = child("StatefulSet", extraVolumes=[volume])["spec"]["template"]["spec"]

    assert spec["volumes"][-1] == {"name": "archive", "emptyDir": {}}
    (broker,) = spec["containers"]
    assert broker["volumeMounts"][-1] == {"name": "archive", "mountPath": "/archive", "readOnly": False}
    assert {each["name"] for each in spec["volumes"]} - {"archive"} <= OWN_VOLUMES
    broker = next(each for each in spec["containers"] if each["name"] == "broker")
    own = [each["mountPath"] for each in broker["volumeMounts"] if each["name"] in OWN_VOLUMES]
    assert set(own) <= set(OWN_PATHS)


@pytest.mark.parametrize(
    ("volume", "says"),
    [
        ({"name": "a", "mountPath": "/a", "source": {"hostPath": {"path": "/"}}}, "hostPath"),
        ({"name": "data", "mountPath": "/a", "source": {"emptyDir": {}}}, "own volume"),
        ({"name": "a", "mountPath": "/data", "source": {"emptyDir": {}}}, "would hide"),
        ({"name": "a", "mountPath": "/etc", "source": {"emptyDir": {}}}, "would hide"),
        ({"name": "a", "mountPath": "/x/../data", "source": {"emptyDir": {}}}, "would hide"),
        ({"name": "a", "mountPath": "/a", "source": {}}, "write one of"),
    ],
)
def test_an_extra_volume_that_reaches_the_node_or_hides_the_broker_s_is_refused(volume: Manifest, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        ExtraVolume.model_validate(volume)


def test_more_names_are_in_the_certificate() -> None:
    issued = {"issuerRef": {"name": "ca"}, "dnsNames": ["mq.example.com", "*.mq.example.com", "mq"]}

    names = child("Certificate", tls={"secretName": "tls", "certManager": issued})["spec"]["dnsNames"]

    assert names[-2:] == ["mq.example.com", "*.mq.example.com"]
    assert len(set(names)) == len(names)


def test_an_image_may_be_named_by_its_digest() -> None:
    image = "registry.example/penstock@sha256:" + "0" * 64

    (broker,) = child("StatefulSet", image=image)["spec"]["template"]["spec"]["containers"]

    assert broker["image"] == image
