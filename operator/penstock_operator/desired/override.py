"""Merges a manifest's overrides and additions into the operator's own objects.

The merge is Kubernetes' strategic one: maps by key, lists of named items by name, other lists whole, null removes. The
types have refused everything that must not be overridden, so nothing is checked here.
"""

from typing import Any, Final

from penstock_operator.api.override import BROKER
from penstock_operator.desired.naming import Owner

Manifest = dict[str, Any]
# The key that tells the items of a list apart, by the list's name; a Service's ports are told apart by `port`.
MERGE_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "hostAliases": "ip",
    "ports": "port",
}
RESTRICTED: Final = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def merge(base: Any, change: Any, name: str = "") -> Any:
    """Return the base with a change merged into it."""
    if isinstance(base, dict) and isinstance(change, dict):
        kept = {key: value for key, value in base.items() if change.get(key, value) is not None}
        new = {key: merge(base.get(key), value, key) for key, value in change.items() if value is not None}
        return kept | new
    key = MERGE_KEYS.get(name)
    if key is not None and isinstance(base, list) and isinstance(change, list):
        return _merge_lists(base, change, key)
    return change


def _merge_lists(base: list[Any], change: list[Any], key: str) -> list[Any]:
    changes = {each[key]: each for each in change}
    merged = [merge(each, changes.pop(each.get(key), {})) for each in base]
    return [*merged, *changes.values()]


def overridden_set(owner: Owner, base: Manifest) -> Manifest:
    """Return the StatefulSet with the additions of the spec and its overrides."""
    override = owner.spec.override
    found = merge(base, override.stateful_set or {})
    template = merge(found["spec"]["template"], _additions(owner))
    template = merge(template, override.pod or {})
    restricted = {
        key: [_restricted(each) for each in template["spec"][key]]
        for key in ("initContainers", "containers")
        if key in template["spec"]
    }
    template = {**template, "spec": {**template["spec"], **restricted}}
    return {**found, "spec": {**found["spec"], "template": template}}


def _restricted(container: Manifest) -> Manifest:
    """Return a container with what the restricted pod security standard asks for, where it says nothing else."""
    context = container.get("securityContext", {})
    missing = {key: value for key, value in RESTRICTED.items() if key not in context}
    return {**container, "securityContext": {**context, **missing}}


def _additions(owner: Owner) -> Manifest:
    """Return the change that the spec's own fields for volumes and spreading stand for."""
    spec: Manifest = {}
    spread = owner.spec.scheduling.topology_spread_constraints
    if spread:
        spec["topologySpreadConstraints"] = spread
    volumes = owner.spec.extra_volumes
    if volumes:
        spec["volumes"] = [{"name": each.name, **each.source} for each in volumes]
        mounts = [{"name": each.name, "mountPath": each.mount_path, "readOnly": each.read_only} for each in volumes]
        spec["containers"] = [{"name": BROKER, "volumeMounts": mounts}]
    return {"spec": spec} if spec else {}


def overridden_service(owner: Owner, base: Manifest) -> Manifest:
    """Return a Service with its override."""
    override = owner.spec.override
    is_headless = base["metadata"]["name"] == owner.headless
    found: Manifest = merge(base, (override.headless_service if is_headless else override.service) or {})
    return found
