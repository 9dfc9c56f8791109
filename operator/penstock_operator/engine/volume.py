"""Grows a Cluster's volumes.

A StatefulSet's claim templates cannot change: the claims are patched, and the StatefulSet is deleted without its pods
and made again with the new size. Each step can be interrupted and is resumed.
"""

from typing import Any

from penstock_operator.desired import Owner
from penstock_operator.desired.compare import quantity
from penstock_operator.desired.naming import is_owned_by
from penstock_operator.engine.world import World

Manifest = dict[str, Any]


def grow(world: World, owner: Owner, workload: Manifest | None) -> tuple[str, tuple[str, str] | None]:
    """Grow the volumes; return the size to use, and reason and message when they cannot grow."""
    wanted = owner.spec.storage.size
    is_foreign = workload is not None and not is_owned_by(workload, owner.uid)
    if owner.spec.storage.mode != "pvc" or is_foreign:
        return wanted, None
    for ordinal in owner.ordinals:
        size, refusal = _grow_claim(world, owner, ordinal)
        if refusal is not None:
            return size, refusal
    if workload is not None and "deletionTimestamp" not in workload["metadata"] and _template_differs(workload, wanted):
        world.kubernetes.delete({**workload, "apiVersion": "apps/v1", "kind": "StatefulSet"}, propagation="Orphan")
    return wanted, None


def _grow_claim(world: World, owner: Owner, ordinal: int) -> tuple[str, tuple[str, str] | None]:
    wanted = owner.spec.storage.size
    claim = world.kubernetes.read("v1", "PersistentVolumeClaim", owner.namespace, owner.claim(ordinal))
    size = wanted if claim is None else str(claim["spec"]["resources"]["requests"]["storage"])
    if claim is None or not _is_smaller(size, wanted):
        return wanted, None
    refusal = _cannot_grow(world, claim)
    if refusal is not None:
        return size, refusal
    change = {"spec": {"resources": {"requests": {"storage": wanted}}}}
    world.kubernetes.patch({**claim, "apiVersion": "v1", "kind": "PersistentVolumeClaim"}, change)
    return wanted, None


def _is_smaller(size: str, wanted: str) -> bool:
    one, other = quantity(size), quantity(wanted)
    return one is not None and other is not None and one < other


def _template_differs(workload: Manifest, wanted: str) -> bool:
    for template in workload["spec"].get("volumeClaimTemplates", []):
        return quantity(template["spec"]["resources"]["requests"]["storage"]) != quantity(wanted)
    return False


def _cannot_grow(world: World, claim: Manifest) -> tuple[str, str] | None:
    name = claim["spec"].get("storageClassName")
    if not name:
        return "ExpansionUnsupported", "the volume has no storage class, so that it cannot grow; put the old size back"
    found = world.kubernetes.read("storage.k8s.io/v1", "StorageClass", None, name)
    if found is None or not found.get("allowVolumeExpansion"):
        return (
            "ExpansionUnsupported",
            f"the storage class '{name}' does not let volumes grow; put the old size back, or use another Cluster",
        )
    return None
