"""Manifests that the scenarios share: objects of ours in a line, and the pod that keeps a message history."""

from pathlib import Path
from typing import Any

Manifest = dict[str, Any]
IMAGE = "penstock:0.1.0"
SMALL = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
LOAD = Path(__file__).with_name("load.py")
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def ours(kind: str, name: str, spec: Manifest, cluster: str = "mq") -> Manifest:
    """Return an object of penstock.dev; all but a Cluster name theirs."""
    reference = {} if kind == "Cluster" else {"clusterRef": {"name": cluster}}
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {**reference, **spec},
    }


def small_cluster(name: str, **spec: Any) -> Manifest:
    wanted: Manifest = {"image": IMAGE, "resources": SMALL, "storage": {"size": "1Gi"}}
    return ours("Cluster", name, {**wanted, **spec})


def queue(name: str, **spec: Any) -> Manifest:
    return ours("Queue", name, {"name": name, **spec})


def load_script() -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "load"},
        "data": {"load.py": LOAD.read_text()},
    }


def load_pod(name: str, queue_name: str, secret: str = "mq-default-user") -> Manifest:
    """Return a pod that runs until `touch /tmp/stop`; its last line is the verdict."""
    uri = {"name": "URI", "valueFrom": {"secretKeyRef": {"name": secret, "key": "uri"}}}
    container = {
        "name": "load",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", f"exec python3 /load/load.py $URI {queue_name} /tmp/stop"],
        "env": [uri],
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": "load", "mountPath": "/load"}, {"name": "tmp", "mountPath": "/tmp"}],
    }
    volumes = [{"name": "load", "configMap": {"name": "load"}}, {"name": "tmp", "emptyDir": {}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [container], "volumes": volumes},
    }
