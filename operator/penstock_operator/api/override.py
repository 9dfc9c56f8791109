"""The parts of a Cluster's children that a manifest may override, and the refusal of everything else.

Only listed fields can be overridden: an unknown one is refused by its path. So no override reaches the node, gains
privileges, takes another service account, or replaces the broker's program, its settings or its own volumes.
"""

import posixpath
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from pydantic import Field, model_validator

from penstock_operator.api.fields import Model, Passed

BROKER: Final = "broker"
# Names of the pod's own volumes, and the directories that they are mounted at.
OWN_VOLUMES: Final = frozenset({"data", "config", "tmp", "tls", "clients", "administrator", "backup", "restore"})
OWN_PATHS: Final = (
    "/data",
    "/etc/penstock",
    "/etc/penstock-administrator",
    "/etc/penstock-tls",
    "/etc/penstock-clients",
    "/tmp",
    "/packages",
)
OWN_LABELS: Final = ("penstock.dev/", "app.kubernetes.io/")
# The volumes of the restricted pod security standard.
VOLUME_SOURCES: Final = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
)
NODE: Final = "the pod shares nothing with its node"
ACCOUNT: Final = "the pod has a service account of its own, without rights"
PROGRAM: Final = "the operator runs the broker's own program; set spec.image"
SETTINGS: Final = "set spec.config instead"
WHY: Final = {
    **dict.fromkeys(("hostNetwork", "hostPID", "hostIPC", "hostUsers", "hostPort", "hostname", "nodeName"), NODE),
    **dict.fromkeys(("serviceAccount", "serviceAccountName", "automountServiceAccountToken"), ACCOUNT),
    **dict.fromkeys(("image", "command", "args", "workingDir", "lifecycle"), PROGRAM),
    **dict.fromkeys(("env", "envFrom"), SETTINGS),
    "securityContext": "the pod is restricted",
    "resources": "set spec.resources instead",
    "externalIPs": "they take traffic that is meant for others",
    "$patch": "directives are not supported; write the fields",
}
Check = Callable[[Any, str], list[str]]


def refused(path: str, reason: str = "") -> str:
    """Return the sentence for a field that cannot be overridden."""
    why = reason or WHY.get(path.rsplit(".", 1)[-1], "it is not among the fields that docs/kubernetes.md lists")
    return f"{path} cannot be overridden; {why}"


def anything(_value: Any, _path: str) -> list[str]:
    return []


def fields(**allowed: Check) -> Check:
    """Return a check that a mapping has only these fields."""

    def check(value: Any, path: str) -> list[str]:
        if not isinstance(value, Mapping):
            return [refused(path, "write a map of its fields")]
        return [
            problem
            for key, inside in value.items()
            for problem in (allowed[key](inside, f"{path}.{key}") if key in allowed else [refused(f"{path}.{key}")])
        ]

    return check


def named(check: Check, key: str = "name") -> Check:
    """Return a check of every item of a list whose items are told apart by a key."""

    def each(value: Any, path: str) -> list[str]:
        if not isinstance(value, list):
            return [refused(path, "write a list")]
        problems: list[str] = []
        for number, item in enumerate(value):
            if not isinstance(item, Mapping) or not item.get(key):
                problems.append(refused(f"{path}[{number}]", f"write its {key}"))
            else:
                problems += check(item, f"{path}[{item[key]}]")
        return problems

    return each


def _foreign_keys(value: Any, path: str) -> list[str]:
    """Refuse labels and annotations of the operator's own."""
    if not isinstance(value, Mapping):
        return [refused(path, "write a map")]
    return [refused(f"{path}[{key}]", "the operator sets it") for key in value if str(key).startswith(OWN_LABELS)]


def _variable(value: Any, path: str) -> list[str]:
    name = str(value["name"])
    if name.startswith(("LD_", "PYTHON")) or name == "PATH":
        return [refused(path, PROGRAM)]
    return [refused(path, SETTINGS)] if name.startswith("PENSTOCK_") else []


def is_own_path(path: str) -> bool:
    """Return whether a mount would hide one of the pod's own directories, or be hidden by one."""
    wanted = posixpath.normpath("/" + path.lstrip("/"))  # `/etc//penstock` and `/./data` are those directories too
    return (
        wanted == "/"
        or ".." in path
        or any(wanted == own or wanted.startswith(f"{own}/") or own.startswith(f"{wanted}/") for own in OWN_PATHS)
    )


def _mount(value: Any, path: str) -> list[str]:
    return [refused(path, "it would hide the broker's own files")] if is_own_path(str(value["mountPath"])) else []


def volume_problems(value: Any, path: str) -> list[str]:
    """Check a volume: its name, and that it is of a kind that a restricted pod may have."""
    if value.get("name") in OWN_VOLUMES:
        return [refused(path, "it is the pod's own volume; choose another name")]
    sources = set(value) - {"name"}
    wrong = sorted(str(each) for each in sources - VOLUME_SOURCES)
    if wrong or len(sources) != 1:
        known = ", ".join(sorted(VOLUME_SOURCES))
        return [refused(f"{path}.{wrong[0]}" if wrong else path, f"{NODE}; write one of {known}")]
    if any("serviceAccountToken" in each for each in _maps(_map(value.get("projected")).get("sources"))):
        return [refused(f"{path}.projected.sources", ACCOUNT)]
    return []


def _added_container(value: Any, path: str) -> list[str]:
    """Check a container beside the broker's: any program, without privileges and ports of the node."""
    found = [refused(f"{path}.{key}") for key in ("volumeDevices",) if key in value]
    if any("hostPort" in port for port in _maps(value.get("ports"))):
        found.append(refused(f"{path}.ports.hostPort"))
    return found + _privileges(_map(value.get("securityContext")), f"{path}.securityContext")


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _maps(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _privileges(value: Mapping[str, Any], path: str) -> list[str]:
    harmless = {
        "allowPrivilegeEscalation": value.get("allowPrivilegeEscalation") is False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": value.get("runAsNonRoot") is True,
        "runAsUser": isinstance(value.get("runAsUser"), int) and value["runAsUser"] > 0,
        "runAsGroup": isinstance(value.get("runAsGroup"), int) and value["runAsGroup"] > 0,
        "capabilities": set(_map(value.get("capabilities"))) <= {"drop"},
        "seccompProfile": _map(value.get("seccompProfile")).get("type") == "RuntimeDefault",
    }
    return [refused(f"{path}.{key}", WHY["securityContext"]) for key in value if not harmless.get(key, False)]


def _container(value: Any, path: str) -> list[str]:
    return _BROKER(value, path) if value["name"] == BROKER else _added_container(value, path)


_METADATA: Final = fields(labels=_foreign_keys, annotations=_foreign_keys)
_PROBE: Final = fields(
    **dict.fromkeys(
        ("initialDelaySeconds", "periodSeconds", "timeoutSeconds", "successThreshold", "failureThreshold"), anything
    )
)
_BROKER: Final = fields(
    name=anything,
    env=named(_variable),
    volumeMounts=named(_mount, "mountPath"),
    startupProbe=_PROBE,
    readinessProbe=_PROBE,
    livenessProbe=_PROBE,
)
_POD_FIELDS: Final = (
    "affinity",
    "dnsConfig",
    "dnsPolicy",
    "hostAliases",
    "nodeSelector",
    "preemptionPolicy",
    "readinessGates",
    "runtimeClassName",
    "schedulerName",
    "tolerations",
    "topologySpreadConstraints",
)
POD: Final = fields(
    metadata=_METADATA,
    spec=fields(
        **dict.fromkeys(_POD_FIELDS, anything),
        containers=named(_container),
        initContainers=named(_added_container),
        volumes=named(volume_problems),
        securityContext=fields(supplementalGroups=anything, fsGroupChangePolicy=anything),
    ),
)
STATEFUL_SET: Final = fields(metadata=_METADATA, spec=fields(minReadySeconds=anything, revisionHistoryLimit=anything))
_SERVICE_FIELDS: Final = (
    "allocateLoadBalancerNodePorts",
    "externalTrafficPolicy",
    "healthCheckNodePort",
    "internalTrafficPolicy",
    "ipFamilies",
    "ipFamilyPolicy",
    "loadBalancerClass",
    "loadBalancerIP",
    "loadBalancerSourceRanges",
    "sessionAffinity",
    "sessionAffinityConfig",
    "trafficDistribution",
)
SERVICE: Final = fields(
    metadata=_METADATA,
    spec=fields(
        **dict.fromkeys(_SERVICE_FIELDS, anything),
        ports=named(fields(name=anything, port=anything, nodePort=anything, appProtocol=anything), "port"),
    ),
)


class Override(Model):
    """Fields that are merged into the operator's own objects. Lists are merged by name, as `kubectl patch` does it."""

    pod: Passed | None = Field(None, description="The pod: metadata and spec.")
    stateful_set: Passed | None = Field(None, description="The StatefulSet: metadata and spec, without the pod.")
    service: Passed | None = Field(None, description="The Service for clients.")
    headless_service: Passed | None = Field(None, description="The headless Service.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        problems = [
            *POD(self.pod or {}, "spec.override.pod"),
            *STATEFUL_SET(self.stateful_set or {}, "spec.override.statefulSet"),
            *SERVICE(self.service or {}, "spec.override.service"),
            *SERVICE(self.headless_service or {}, "spec.override.headlessService"),
        ]
        if problems:
            raise ValueError("; ".join(problems[:3]))
        return self
