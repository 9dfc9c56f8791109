"""Replaces pods of an old revision, one at a time. A pod that is terminating is left alone."""

from typing import Any

from penstock_operator.desired import Owner
from penstock_operator.desired.cluster_status import Seen
from penstock_operator.desired.naming import is_owned_by
from penstock_operator.engine.world import World

Manifest = dict[str, Any]


def roll(world: World, manifest: Manifest, owner: Owner, brokers: list[Seen]) -> bool:
    """Replace one pod whose revision is old; return whether that was done."""
    workload = world.kubernetes.read("apps/v1", "StatefulSet", owner.namespace, owner.name)
    wanted = _wanted_revision(workload, owner)
    if not wanted or any(each.pod is not None and "deletionTimestamp" in each.pod["metadata"] for each in brokers):
        return False
    for each in brokers:
        if each.pod is not None and each.pod["metadata"].get("labels", {}).get("controller-revision-hash") != wanted:
            name = owner.pod(each.ordinal)
            message = f"replacing {name}: its configuration, image or resources changed"
            world.kubernetes.tell(manifest, is_warning=False, reason="RollingPod", message=message)
            world.kubernetes.delete({**each.pod, "apiVersion": "v1", "kind": "Pod"})
            return True
    return False


def _wanted_revision(workload: Manifest | None, owner: Owner) -> str:
    """Return the revision that all pods should have; empty while the StatefulSet's controller has not named it."""
    if workload is None or not is_owned_by(workload, owner.uid):
        return ""
    found = workload.get("status", {})
    is_observed = found.get("observedGeneration") == workload["metadata"].get("generation")
    return str(found.get("updateRevision") or "") if is_observed else ""
