"""Jobs of backups on the fake Kubernetes: what the Job controller and the kubelet do to them."""

import json
from typing import Any

from support.kubernetes_fake import Manifest
from support.operator_world import OperatorWorld

REPORT: Manifest = {
    "target": "/backup/one.backup",
    "bytes": 12_345,
    "vhosts": ["/", "shop"],
    "sha256": "ab" * 32,
    "data_id": "data-1",
    "version": "0.1.0",
}
VOLUME: Manifest = {"volume": {"claimName": "backups"}}
S3: Manifest = {"s3": {"bucket": "backups", "key": "mq/", "credentialsSecret": {"name": "s3"}}}


def jobs(world: OperatorWorld) -> list[Manifest]:
    return [each for (kind, _, _), each in world.kubernetes.objects.items() if kind == "Job"]


def the_job(world: OperatorWorld, suffix: str = "") -> Manifest:
    """Return the only Job that stores a backup, or with a suffix the one that deletes it."""
    (found,) = (each for each in jobs(world) if each["metadata"]["name"].endswith("-delete") == bool(suffix))
    return found


def end_job(world: OperatorWorld, message: str | None = None, *, failure: str = "", suffix: str = "") -> None:
    """End the Job with the pod's message; `failure` is the reason of the Job's condition if it failed."""
    job = the_job(world, suffix)
    add_pod(world, job, json.dumps(REPORT) if message is None else message, is_whole=not failure)
    condition = {"type": "Failed" if failure else "Complete", "status": "True", "reason": failure}
    condition["lastTransitionTime"] = "2026-01-01T00:05:00Z"
    world.kubernetes.edit("Job", job["metadata"]["name"], {"status": {"conditions": [condition]}})


def add_pod(world: OperatorWorld, job: Manifest, message: str, *, is_whole: bool, **status: Any) -> None:
    ended = {"exitCode": 0 if is_whole else 1, "message": message}
    told = {"containerStatuses": [{"name": "backup", "state": {"terminated": ended}}]}
    metadata = {
        "name": f"{job['metadata']['name']}-{len(world.kubernetes.objects)}",
        "namespace": job["metadata"]["namespace"],
        "labels": {"batch.kubernetes.io/job-name": job["metadata"]["name"]},
        "ownerReferences": [{"kind": "Job", "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}],
    }
    phase = "Succeeded" if is_whole else "Failed"
    world.kubernetes.add({"kind": "Pod", "metadata": metadata, "status": {"phase": phase, **told, **status}})


def status(world: OperatorWorld, name: str = "one") -> Manifest:
    found: Manifest = world.kubernetes.objects["Backup", "default", name].get("status", {})
    return found
