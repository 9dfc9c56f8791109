"""The StatefulSet of a Cluster: one broker as an unprivileged user on a read-only root, its volume, its probes.

The operator replaces the pod (OnDelete), never the StatefulSet's own rolling update.
"""

from typing import Any

from penstock_operator.desired.backup_job import restoring
from penstock_operator.desired.cluster_plan import Plan
from penstock_operator.desired.configuration import (
    ADMINISTRATOR_FOLDER,
    CLIENTS_FOLDER,
    FILE,
    TLS_FOLDER,
    config_hash,
    secret_environment,
)
from penstock_operator.desired.naming import (
    ADMINISTRATOR,
    BROKER_UID,
    CONFIG_HASH_ANNOTATION,
    GRPC_PORT,
    METRICS_PORT,
    REVISION_ANNOTATION,
    VOLUME,
    Owner,
)

CONFIG_FOLDER = "/etc/penstock"


def stateful_set(owner: Owner, plan: Plan) -> dict[str, Any]:
    spec = owner.spec
    found: dict[str, Any] = {
        "replicas": len(plan.ordinals),
        "serviceName": owner.headless,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": 2,
        # A StatefulSet is deleted by hand, or to grow the volume. The volume goes with the Cluster alone.
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "selector": {"matchLabels": owner.selector},
        "template": _template(owner, plan),
    }
    if spec.storage.mode == "pvc":
        found["volumeClaimTemplates"] = [_claim(owner, plan)]
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": owner.metadata(owner.name, annotations={REVISION_ANNOTATION: str(plan.revision)}),
        "spec": found,
    }


def _claim(owner: Owner, plan: Plan) -> dict[str, Any]:
    storage = owner.spec.storage
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": plan.size}},
    }
    if storage.storage_class_name is not None:
        spec["storageClassName"] = storage.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": VOLUME, "labels": owner.labels},
        "spec": spec,
    }


def _template(owner: Owner, plan: Plan) -> dict[str, Any]:
    spec, scheduling = owner.spec, owner.spec.scheduling
    pod: dict[str, Any] = {
        "serviceAccountName": owner.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": spec.termination_grace_period_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": BROKER_UID,
            "runAsGroup": BROKER_UID,
            "fsGroup": BROKER_UID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(owner, plan)],
        "volumes": _volumes(owner, plan),
    }
    if plan.restore is not None:
        restore, volumes = restoring(plan.restore, spec.image, spec.image_pull_policy, spec.resources.manifest())
        pod["initContainers"] = [restore]
        pod["volumes"] += volumes
    optional: dict[str, Any] = {
        "imagePullSecrets": [each.manifest() for each in spec.image_pull_secrets],
        "nodeSelector": scheduling.node_selector,
        "tolerations": scheduling.tolerations,
        "affinity": scheduling.affinity,
        "priorityClassName": scheduling.priority_class_name,
    }
    return {
        "metadata": {
            "labels": {**spec.pod_labels, **owner.labels},
            "annotations": {**spec.pod_annotations, CONFIG_HASH_ANNOTATION: config_hash(owner, plan)},
        },
        "spec": pod | {key: value for key, value in optional.items() if value},
    }


def _ports(owner: Owner) -> list[dict[str, Any]]:
    amqp = [owner.amqp_port] if owner.amqp_port else []
    named = [("grpc", GRPC_PORT), *amqp, ("metrics", METRICS_PORT)]
    return [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in named]


def _container(owner: Owner, plan: Plan) -> dict[str, Any]:
    resources = {key: value for key, value in owner.spec.resources.manifest().items() if value}
    return {
        "name": "broker",
        "image": owner.spec.image,
        "imagePullPolicy": owner.spec.image_pull_policy,
        "args": ["serve", "--config", f"{CONFIG_FOLDER}/{FILE}"],
        **_environment(owner, plan),
        "ports": _ports(owner),
        "resources": resources,
        # A long replay is no reason for a kill: it may take an hour. Nor is a full disk or an absent API server: the
        # liveness probe only checks whether a restart would help.
        "startupProbe": _probe("startup", period=1, failures=3_600),
        "readinessProbe": _probe("ready", period=2, failures=2),
        "livenessProbe": _probe("live", period=10, failures=6),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": VOLUME, "mountPath": "/data"},
            {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
            *({"name": name, "mountPath": path, "readOnly": True} for name, path, _ in _secrets(owner, plan)),
        ],
    }


def _environment(owner: Owner, plan: Plan) -> dict[str, Any]:
    """Return the variables, if there are any: settings that Secrets have, and once the administrator's."""
    found = [*([] if plan.has_password_file else _administrator(owner)), *secret_environment(owner)]
    return {"env": found} if found else {}


def _administrator(owner: Owner) -> list[dict[str, Any]]:
    return [
        {"name": "PENSTOCK_DEFAULT_USER", "value": ADMINISTRATOR},
        {
            "name": "PENSTOCK_DEFAULT_PASSWORD",
            "valueFrom": {"secretKeyRef": {"name": owner.secret, "key": "password"}},
        },
    ]


def _probe(question: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": f"/health/{question}", "port": "metrics"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _volumes(owner: Owner, plan: Plan) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": "config", "configMap": {"name": owner.config_map}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
    ]
    found += [{"name": name, "secret": secret} for name, _, secret in _secrets(owner, plan)]
    if owner.spec.storage.mode == "emptyDir":
        found.append({"name": VOLUME, "emptyDir": {"sizeLimit": plan.size}})
    return found


def _secrets(owner: Owner, plan: Plan) -> list[tuple[str, str, dict[str, Any]]]:
    """Return volumes from Secrets: name, mount path, and source. Of the clients' CA only the public part.

    They are mounted whole, as Kubernetes updates no file that is mounted by a subPath.
    """
    found: list[tuple[str, str, dict[str, Any]]] = []
    if plan.has_password_file:
        password = {"secretName": owner.secret, "items": [{"key": "password", "path": "password"}]}
        found.append(("administrator", ADMINISTRATOR_FOLDER, password))
    tls = owner.spec.tls
    if tls is None:
        return found
    found.append(("tls", TLS_FOLDER, {"secretName": tls.secret_name}))
    if tls.client_certificates is not None:
        public = [{"key": "ca.crt", "path": "ca.crt"}]
        secret = {"secretName": tls.client_certificates.authority_secret_name, "items": public}
        found.append(("clients", CLIENTS_FOLDER, secret))
    return found
