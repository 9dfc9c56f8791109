"""Replaces a pod whose revision is old, when the StatefulSet's controller has named the new one."""

from typing import Any

from penstock_operator.desired import Owner
from penstock_operator.desired.cluster_status import Seen
from penstock_operator.desired.naming import is_owned_by
from penstock_operator.desired.rolling import next_to_replace
from penstock_operator.engine.world import World

Manifest = dict[str, Any]


def roll(world: World, manifest: Manifest, owner: Owner, brokers: list[Seen]) -> None:
    """Replace one pod, if it is time for one."""
    workload = world.kubernetes.read("apps/v1", "StatefulSet", owner.namespace, owner.name)
    revision = _wanted_revision(workload, owner)
    found = next_to_replace(brokers, revision) if revision else None
    if found is None or found.pod is None:
        return
    message = f"replacing {owner.pod(found.ordinal)}: its configuration, image or resources changed"
    world.kubernetes.tell(manifest, is_warning=False, reason="RollingPod", message=message)
    world.kubernetes.delete({**found.pod, "apiVersion": "v1", "kind": "Pod"})


def _wanted_revision(workload: Manifest | None, owner: Owner) -> str:
    """Return the revision that all pods should have; empty while the StatefulSet's controller has not named it."""
    if workload is None or not is_owned_by(workload, owner.uid):
        return ""
    found = workload.get("status", {})
    is_observed = found.get("observedGeneration") == workload["metadata"].get("generation")
    return str(found.get("updateRevision") or "") if is_observed else ""
