"""The Jobs of a Backup: one that stores it and one that deletes its file; and the container that restores a Cluster.

Each runs the broker's image as an unprivileged user on a read-only root without a token. A Job's name follows from the
Backup's uid, so that a restarted operator finds it and makes no second one. The uid is also the id of the request: a
pod that replaces one that had stored the file, and could not report it, recognizes the file. The command's report is
the termination message; when it fails, that is the end of its log.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from penstock_operator.api.backup import BackupSpec, S3Target, Target
from penstock_operator.api.kinds import API_VERSION
from penstock_operator.desired.configuration import ADMINISTRATOR_FOLDER, TLS_FOLDER
from penstock_operator.desired.naming import (
    BACKUP_OF_LABEL,
    BROKER_UID,
    CLUSTER_LABEL,
    FIELD_MANAGER,
    GRPC_PORT,
    RESTORE,
    VOLUME,
    Owner,
)

Manifest = dict[str, Any]
BACKUP_FOLDER: Final = "/backup"
MESSAGE_FILE: Final = "/dev/termination-log"
RETRIES_MAX: Final = 2
# A variable, not an option, as an older image would refuse an option that it does not know.
REQUEST_VARIABLE: Final = "PENSTOCK_BACKUP_REQUEST_ID"
# How long an ended Job stays, for its log. The operator has its outcome in the Backup's status long before.
KEPT_SECONDS: Final = 86_400
DELETE_SECONDS_MAX: Final = 300
# A command that is asked to end removes what it stored; before, a broker that hangs takes half a minute to be noticed.
GRACE_SECONDS: Final = 60
_NAME_LENGTH_MAX: Final = 40
# The report goes into the termination message. The folder of a file on a volume may not exist yet.
_STORE: Final = f'mkdir -p "$0" && exec python3 /packages/bin/penstock "$@" > {MESSAGE_FILE}'
_RUN: Final = f'exec python3 /packages/bin/penstock "$@" > {MESSAGE_FILE}'
_DIGEST: Final = re.compile("[0-9a-f]{64}")
RESTRICTED: Final[Manifest] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


@dataclass(frozen=True, slots=True)
class Access:
    """How a Job logs in to the broker: by files from Secrets, which Kubernetes mounts."""

    account: str
    has_authority: bool = False
    # Secret of the client certificate, where the Cluster asks for one.
    certificate_secret: str = ""


def job_name(backup: str, uid: str, suffix: str = "") -> str:
    """Return the name of a Backup's Job: the pods have it as a label, so it is short."""
    return f"{backup[:_NAME_LENGTH_MAX].rstrip('.-')}-{hashlib.sha256(uid.encode()).hexdigest()[:10]}{suffix}"


def backup_job(manifest: Manifest, spec: BackupSpec, owner: Owner, access: Access) -> Manifest:
    """Return the Job that stores a backup of the Cluster."""
    metadata = manifest["metadata"]
    target = spec.target.of(metadata["name"])
    uri, files = _broker(owner, access)
    words = ["backup", "download", location(target), "--output", "json", "--uri", uri]
    words += ["--password-file", f"{ADMINISTRATOR_FOLDER}/password"]
    container = _container("backup", owner.spec.image, target, words, spec.resources.manifest(), makes_folder=True)
    container["imagePullPolicy"] = owner.spec.image_pull_policy
    container["env"] = [*container.get("env", []), {"name": REQUEST_VARIABLE, "value": metadata["uid"]}]
    container["volumeMounts"] += [{"name": name, "mountPath": path, "readOnly": True} for name, path, _ in files]
    pod = _pod(container, target)
    pod["volumes"] += [{"name": name, "secret": secret} for name, _, secret in files]
    scheduling = owner.spec.scheduling
    optional: Manifest = {
        "imagePullSecrets": [each.manifest() for each in owner.spec.image_pull_secrets],
        "nodeSelector": scheduling.node_selector,
        "tolerations": scheduling.tolerations,
    }
    pod |= {key: value for key, value in optional.items() if value}
    return _job(metadata, job_name(metadata["name"], metadata["uid"]), owner.name, pod, spec.deadline_seconds)


def deletion_job(manifest: Manifest, spec: BackupSpec, image: str, pull_secrets: list[Manifest]) -> Manifest:
    """Return the Job that deletes the file of a backup. It needs no broker.

    It has no owner: with `kubectl delete --cascade=foreground` Kubernetes would delete it before it has run. It deletes
    only the file with the digest that the Backup reported: at a path that several Backups name it may be another's. To
    compare them it reads the file, in the time that storing it may take.
    """
    metadata = manifest["metadata"]
    target = spec.target.of(metadata["name"])
    words = ["backup", "delete", location(target)]
    seconds_max = DELETE_SECONDS_MAX
    digest = str(manifest.get("status", {}).get("sha256") or "")
    if _DIGEST.fullmatch(digest):
        words += ["--sha256", digest]
        seconds_max = max(seconds_max, spec.deadline_seconds)
    pod = _pod(_container("delete", image, target, words, spec.resources.manifest()), target)
    if pull_secrets:
        pod["imagePullSecrets"] = pull_secrets
    name = job_name(metadata["name"], metadata["uid"], "-delete")
    return _job(metadata, name, spec.cluster_ref.name, pod, seconds_max, is_owned=False)


def restoring(
    target: Target, image: str, image_pull_policy: str, resources: Manifest
) -> tuple[Manifest, list[Manifest]]:
    """Return the init container that restores the data directory of a new broker, and the volumes that it needs."""
    words = ["restore", location(target), "--data-dir", "/data", "--if-empty", "--output", "json"]
    container = _container(RESTORE, image, target, words, resources)
    container["imagePullPolicy"] = image_pull_policy
    container["volumeMounts"] = [
        {**each, "readOnly": True} if each["name"] == "backup" else each for each in container["volumeMounts"]
    ]
    container["volumeMounts"].append({"name": VOLUME, "mountPath": "/data"})
    return container, _volumes(target)


def location(target: Target) -> str:
    """Return the target as the command takes it: a path in the container, or an address of S3."""
    if target.volume is not None:
        return f"{BACKUP_FOLDER}/{target.volume.path}"
    return str(target)


def _job(
    backup: Manifest, name: str, cluster: str, pod: Manifest, seconds_max: int, *, is_owned: bool = True
) -> Manifest:
    labels = {
        "app.kubernetes.io/name": "penstock-backup",
        "app.kubernetes.io/instance": cluster,
        "app.kubernetes.io/managed-by": FIELD_MANAGER,
    }
    reference = {
        "apiVersion": API_VERSION,
        "kind": "Backup",
        "name": backup["name"],
        "uid": backup["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }
    metadata: Manifest = {
        "name": name,
        "namespace": backup["namespace"],
        "labels": {**labels, CLUSTER_LABEL: cluster},
    }
    if is_owned:
        metadata["ownerReferences"] = [reference]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": RETRIES_MAX,
            # A pod that is being stopped may still store, and the broker makes one backup at a time: a second pod
            # beside it would only use up the retries.
            "podReplacementPolicy": "Failed",
            "activeDeadlineSeconds": seconds_max,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {"metadata": {"labels": {**labels, BACKUP_OF_LABEL: cluster}}, "spec": pod},
        },
    }


def _pod(container: Manifest, target: Target) -> Manifest:
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": BROKER_UID,
            "runAsGroup": BROKER_UID,
            "fsGroup": BROKER_UID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}, *_volumes(target)],
    }


def _container(
    name: str, image: str, target: Target, words: list[str], resources: Manifest, *, makes_folder: bool = False
) -> Manifest:
    """Return the container. Its words reach the command as they are: the shell reads none of them."""
    mounts = [{"name": "tmp", "mountPath": "/tmp"}]
    if target.volume is not None:
        mounts.append({"name": "backup", "mountPath": BACKUP_FOLDER})
    folder = location(target).rpartition("/")[0]
    is_stored = makes_folder and target.volume is not None
    script = [_STORE, folder] if is_stored else [_RUN, "sh"]
    found: Manifest = {
        "name": name,
        "image": image,
        "command": ["/bin/sh", "-c", *script, *words],
        "resources": {key: value for key, value in resources.items() if value},
        "securityContext": RESTRICTED,
        "terminationMessagePath": MESSAGE_FILE,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    if target.s3 is not None:
        found["env"] = _environment(target.s3)
    return found


def _volumes(target: Target) -> list[Manifest]:
    if target.volume is None:
        return []
    return [{"name": "backup", "persistentVolumeClaim": {"claimName": target.volume.claim_name}}]


def _environment(target: S3Target) -> list[Manifest]:
    secret = target.credentials_secret.name
    keys = (("AWS_ACCESS_KEY_ID", False), ("AWS_SECRET_ACCESS_KEY", False), ("AWS_SESSION_TOKEN", True))
    found: list[Manifest] = [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": secret, "key": key} | ({"optional": True} if may else {})}}
        for key, may in keys
    ]
    found.append({"name": "AWS_REGION", "value": target.region})
    if target.endpoint is not None:
        found.append({"name": "AWS_ENDPOINT_URL", "value": target.endpoint})
        if target.endpoint.startswith("http:"):
            found.append({"name": "AWS_ALLOW_HTTP", "value": "true"})
    return found


def _broker(owner: Owner, access: Access) -> tuple[str, list[tuple[str, str, Manifest]]]:
    """Return the broker's address without a password, and the volumes with what the log-in needs."""
    items = [{"key": "password", "path": "password"}]
    scheme, query = "penstock", []
    files: list[tuple[str, str, Manifest]] = []
    if owner.spec.tls is not None:
        scheme = "penstocks"
        if access.has_authority:
            items.append({"key": "ca.crt", "path": "ca.crt"})
            query.append(f"ca={ADMINISTRATOR_FOLDER}/ca.crt")
        if access.certificate_secret:
            names = ("tls.crt", "tls.key")
            secret = {"secretName": access.certificate_secret, "items": [{"key": each, "path": each} for each in names]}
            files.append(("certificate", TLS_FOLDER, secret))
            query += [f"cert={TLS_FOLDER}/tls.crt", f"key={TLS_FOLDER}/tls.key"]
    files.append(("administrator", ADMINISTRATOR_FOLDER, {"secretName": owner.secret, "items": items}))
    address = f"{scheme}://{quote(access.account, safe='')}@{owner.host}:{GRPC_PORT}/"
    return address + (f"?{'&'.join(query)}" if query else ""), files
