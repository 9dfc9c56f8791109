"""The kind `Shard`, in which the brokers of a cluster store who leads a shard. Brokers alone write it.

The operator neither reads nor changes it, so `KINDS` lacks it. Its schema repeats the shape that brokers check.
"""

import json
from typing import Any, Final

from penstock_operator.api.kinds import GROUP, VERSION

PLURAL: Final = "shards"
CRD_NAME: Final = f"{PLURAL}.{GROUP}"
REPLICAS_MAX: Final = 64
RECOVERIES_MAX: Final = 8
# Numbers of 64 bits without a sign: Kubernetes rounds integers of 63 bits and more.
_NUMBER: Final = {"type": "string", "pattern": "^[0-9]{1,20}$", "maxLength": 20}
_REPLICA: Final = {"type": "string", "pattern": "^[0-9a-f]{32}$", "maxLength": 32}
_BROKER: Final = {"type": "string", "minLength": 1, "maxLength": 253}


def shard_crd() -> dict[str, Any]:
    """Return the manifest of the kind."""
    spec = {
        "description": "Written by brokers alone: changing it may lose confirmed messages.",
        "type": "object",
        "required": ["version", "record"],
        "properties": {"version": {"type": "string", "maxLength": 64}, "record": _record()},
    }
    schema = {
        "type": "object",
        "description": "A shard of a cluster: its leader and its replicas.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
        },
    }
    columns = [
        {"name": "Leader", "type": "string", "jsonPath": ".spec.record.leader.broker"},
        {"name": "Epoch", "type": "string", "jsonPath": ".spec.record.epoch"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": columns,
    }
    names = {
        "kind": "Shard",
        "listKind": "ShardList",
        "plural": PLURAL,
        "singular": "shard",
        "categories": ["penstock"],
    }
    manifest = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD_NAME},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    whole: dict[str, Any] = json.loads(json.dumps(manifest))  # no part is shared: YAML would refer to it
    return whole


def _record() -> dict[str, Any]:
    leader = {
        "type": "object",
        "required": ["broker", "replica", "boot"],
        "properties": {"broker": _BROKER, "replica": _REPLICA, "boot": _NUMBER},
    }
    return {
        "type": "object",
        "required": ["epoch", "leader", "in_sync", "replicas", "min_in_sync"],
        "properties": {
            "epoch": _NUMBER,
            "leader": leader,
            "in_sync": {"type": "array", "minItems": 1, "maxItems": REPLICAS_MAX, "items": _REPLICA},
            "replicas": {"type": "object", "maxProperties": REPLICAS_MAX, "additionalProperties": _BROKER},
            "min_in_sync": {"type": "integer", "minimum": 1, "maximum": REPLICAS_MAX},
            "recoveries": {"type": "array", "maxItems": RECOVERIES_MAX, "items": _recovery()},
        },
    }


def _recovery() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["epoch", "broker", "replica", "end", "by", "at_ms", "lost"],
        "properties": {
            "epoch": _NUMBER,
            "broker": _BROKER,
            "replica": _REPLICA,
            "end": _NUMBER,
            "by": {"type": "string", "maxLength": 255},
            "at_ms": {"type": "integer", "format": "int64", "minimum": 0},
            "lost": {"type": "array", "maxItems": REPLICAS_MAX, "items": _REPLICA},
        },
    }
